-- head: the first waiting jobs, looked at before any is taken
-- include: attempts
local MOST_GHOSTS, MOST_USED_UP = 1000, 64

-- look(wanted, limit) -> error reply, what it found: ids and jobs to hand out, ids that have used up
-- their attempts by the limit(job) in force, what was used of the lists and how many ids of them were
-- looked at, and whether a bound was reached. An id without a job is a ghost (see waiting); after a
-- miss each further look is twice as long.
local function look(wanted, limit)
  local found = { ids = {}, jobs = {}, spent = {}, ranked = {}, used = { [FRONT] = 0, [WAITING] = 0 }, looked = 0 }

  local function sort_out(id, job)
    found.jobs[id] = job
    local most = limit(job)
    if used_up(job, most) then
      found.spent[#found.spent + 1] = id
      stamp(job, most)
    else
      found.ids[#found.ids + 1] = id
    end
  end
  local function enough()
    return #found.ids == wanted or #found.spent >= MOST_USED_UP
  end

  local jobs, corrupt, some
  repeat
    some = call('ZRANGEBYSCORE', RANKED, '-inf', '(0', 'LIMIT', #found.ranked, wanted - #found.ids)
    jobs, corrupt = load(ids_of(some))
    if corrupt then return corrupt end
    for i, id in ipairs(ids_of(some)) do
      if not jobs[id] or jobs[id].state ~= 'r' then
        return redis.error_reply('CORRUPT there are waiting ids whose jobs are missing')
      end
      found.ranked[#found.ranked + 1] = some[i]
      sort_out(id, jobs[id])
    end
  until #some == 0 or enough()

  local bound = wanted + MOST_GHOSTS
  for _, list in ipairs({ FRONT, WAITING }) do
    local more = true
    while more and not enough() and found.looked < bound do
      local step = math.min(math.max(wanted - #found.ids, found.looked), bound - found.looked)
      some = call('LRANGE', list, found.used[list], found.used[list] + step - 1)
      jobs, corrupt = load(some)
      if corrupt then return corrupt end
      more = #some == step
      for _, id in ipairs(some) do
        if enough() then break end
        found.used[list], found.looked = found.used[list] + 1, found.looked + 1
        if jobs[id] and jobs[id].state == 'w' then sort_out(id, jobs[id]) end
      end
    end
  end
  found.unfinished = #found.ids < wanted and (found.looked == bound or enough())
  found.met = found.looked - (#found.ids + #found.spent - #found.ranked)
  return nil, found
end
