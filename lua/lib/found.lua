-- found: what was found among the waiting jobs, before any is taken
-- include: attempts
local MOST_USED_UP = 64

-- finding(wanted, limit) -> found, add(id, job) -> enough(), enough(). Found are: ids and jobs to hand out, ids that
-- have used up their attempts by the limit(job) in force, members of RANKED, what was used of the lists and
-- how many of their members were looked at.
local function finding(wanted, limit)
  local found = { ids = {}, jobs = {}, spent = {}, ranked = {}, used = { [FRONT] = 0, [WAITING] = 0 }, looked = 0 }

  local function enough()
    return #found.ids == wanted or #found.spent >= MOST_USED_UP
  end
  local function add(id, job)
    found.jobs[id] = job
    local most = limit(job)
    if used_up(job, most) then
      found.spent[#found.spent + 1], found.jobs[id] = id, read(call('HGET', JOBS, id))
    else
      found.ids[#found.ids + 1] = id
    end
    stamp(found.jobs[id], most)
    return enough()
  end
  return found, add, enough
end
