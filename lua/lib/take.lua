-- take: taking from the waiting jobs what was looked at
-- include: head

-- take(found, ghosts, alone) -> error reply: removes it from the lists and RANKED, and the ghosts
-- among it; where ghosts are all that is left, those, too. Where it is `unfinished`, and `alone` all
-- that the call would tell, only ghosts go: the answer is not known yet, and the caller comes again.
local function take(found, ghosts, alone)
  local used, met, again = found.used, found.met, found.unfinished and alone
  if met > ghosts then
    return LOST
  end
  local left = ghosts > 0 and call('LLEN', FRONT) + call('LLEN', WAITING) - used[FRONT] - used[WAITING]
  if #found.ranked > 0 and not again then call('ZREM', RANKED, unpack(found.ranked)) end
  for _, list in ipairs({ FRONT, WAITING }) do
    if used[list] > 0 then call('LPOP', list, used[list]) end
  end
  if ghosts > 0 and left == ghosts - met then
    call('UNLINK', FRONT, WAITING)
    met = ghosts
  end
  if met > 0 then call('HINCRBY', META, 'ghosts', -met) end
  if again then
    for i = #found.ids, 1, -1 do
      if found.jobs[found.ids[i]].state == 'w' then call('LPUSH', FRONT, found.members[i]) end
    end
    return redis.error_reply('AGAIN cancelled jobs stood before the waiting ones')
  end
end
