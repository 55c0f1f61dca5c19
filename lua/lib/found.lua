-- found: what was found among the waiting jobs, before any is taken
-- include: attempts
local MOST_USED_UP = 64

-- finding(wanted, limit) -> found, add(id, job, sequence, member) -> enough(), enough(). Found are: what to hand
-- out, ids that have used up their attempts by the limit(job) in force, members of RANKED, what was used of
-- the lists and how many of their members were looked at. Neighbors to hand out may share a job's table.
local function finding(wanted, limit)
  local found = {
    ids = {}, jobs = {}, sequences = {}, members = {}, spent = {}, ranked = {},
    used = { [FRONT] = 0, [WAITING] = 0 }, looked = 0,
  }
  local last, most, over

  local function enough()
    return #found.ids == wanted or #found.spent >= MOST_USED_UP
  end
  local function add(id, job, sequence, member)
    if job ~= last then
      last, most = job, limit(job)
      over = used_up(job, most)
      stamp(job, most)
    end
    if over then
      found.spent[#found.spent + 1], found.jobs[id] = id, read(call('HGET', JOBS, id))
      stamp(found.jobs[id], most)
    else
      local i = #found.ids + 1
      found.ids[i], found.jobs[id], found.sequences[i], found.members[i] = id, job, sequence, member
    end
    return enough()
  end
  return found, add, enough
end
