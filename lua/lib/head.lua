-- head: the first waiting jobs, looked at before any is taken
-- include: found seen
local MOST_GHOSTS = 1000
local LOST = redis.error_reply('CORRUPT there are waiting ids whose jobs are missing')

-- look(wanted, limit) -> error reply, what it found (see `finding`), and whether a bound was reached. A
-- member of a list where no job stands is a ghost (see waiting); after a miss each further look is twice as
-- long.
local function look(wanted, limit)
  local found, add, enough = finding(wanted, limit)
  local bound = wanted + MOST_GHOSTS

  local function look_ranked(from, to)
    local before, some = #found.ranked, nil
    repeat
      some = call('ZRANGEBYSCORE', RANKED, from, to, 'LIMIT', #found.ranked - before, wanted - #found.ids)
      local corrupt, ids, jobs, sequences = seen(some)
      if corrupt then return corrupt end
      for i, id in ipairs(ids) do
        if not jobs[i] or jobs[i].state ~= 'r' then return LOST end
        found.ranked[#found.ranked + 1] = some[i]
        add(id, jobs[i], sequences[i], some[i])
      end
    until #some == 0 or enough()
  end
  local function look_listed(list)
    local more = true
    while more and not enough() and found.looked < bound do
      local step = math.min(math.max(wanted - #found.ids, found.looked), bound - found.looked)
      local some = call('LRANGE', list, found.used[list], found.used[list] + step - 1)
      local corrupt, ids, jobs, sequences = seen(some)
      if corrupt then return corrupt end
      more = #some == step
      local looked = 0
      for i, id in ipairs(ids) do
        looked = i
        local job = jobs[i]
        if job and job.state == 'w' and place(id, sequences[i]) == some[i] and add(id, job, sequences[i], some[i]) then
          break
        end
      end
      found.used[list], found.looked = found.used[list] + looked, found.looked + looked
    end
    found.unfinished = found.unfinished or more
  end

  local corrupt = look_ranked('-inf', '(0') or look_listed(FRONT) or look_listed(WAITING)
  if not corrupt and not found.unfinished and not enough() then corrupt = look_ranked('(0', '+inf') end
  found.unfinished = #found.ids < wanted and (found.unfinished or enough())
  found.met = found.looked - (#found.ids + #found.spent - #found.ranked)
  return corrupt, found
end
