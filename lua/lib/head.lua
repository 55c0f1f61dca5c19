-- head: the oldest waiting jobs, looked at before any is taken
-- include: jobs
local MOST_GHOSTS = 1000

-- look(wanted, ids, jobs) -> error reply, {list: ids of it used}, ids looked at, whether the bound
-- was reached. Adds waiting jobs to `ids` and `jobs`, up to `wanted`. An id without a job is a
-- ghost (see waiting); after a miss each further look is twice as long.
local function look(wanted, ids, jobs)
  local used, looked, bound = { [FRONT] = 0, [WAITING] = 0 }, 0, wanted + MOST_GHOSTS
  for _, list in ipairs({ FRONT, WAITING }) do
    local more = true
    while more and #ids < wanted and looked < bound do
      local step = math.min(math.max(wanted - #ids, looked), bound - looked)
      local some = call('LRANGE', list, used[list], used[list] + step - 1)
      local found, corrupt = load(some)
      if corrupt then return corrupt end
      more = #some == step
      for _, id in ipairs(some) do
        if #ids == wanted then break end
        used[list], looked = used[list] + 1, looked + 1
        if found[id] and found[id].state == 'w' then
          ids[#ids + 1], jobs[id] = id, found[id]
        end
      end
    end
  end
  return nil, used, looked, #ids < wanted and looked == bound
end

-- take(used, met, ghosts): removes what was looked at from the lists, `met` of the ghosts among it;
-- where ghosts are all that is left, those, too
local function take(used, met, ghosts)
  local left = ghosts > 0 and call('LLEN', FRONT) + call('LLEN', WAITING) - used[FRONT] - used[WAITING]
  for _, list in ipairs({ FRONT, WAITING }) do
    if used[list] > 0 then call('LPOP', list, used[list]) end
  end
  if ghosts > 0 and left == ghosts - met then
    call('UNLINK', FRONT, WAITING)
    met = ghosts
  end
  if met > 0 then call('HINCRBY', META, 'ghosts', -met) end
end
