-- waiting: the order of the waiting jobs is FRONT, then WAITING
-- include: keys
--
-- Cancelling a waiting job leaves its id behind as a ghost, counted in META: whoever meets it drops
-- it. A ghost cannot become a job again, since a retired id never comes back. Where no job waits the
-- lists are empty.
local STEP = 128

-- drop_ghosts(front, behind, ghosts): once they are many, a step of dropping them: ids move from the
-- head of WAITING to the tail of FRONT, and when WAITING is used up FRONT takes its place and the
-- walk starts over. -> ids in FRONT, in WAITING, ghosts left; nothing where it must not go on
local function drop_ghosts(front, behind, ghosts)
  if behind == 0 then
    call('RENAME', FRONT, WAITING)
    front, behind = 0, front
  end
  local ids = call('LRANGE', WAITING, 0, STEP - 1)
  local known, kept = call('HMGET', JOBS, unpack(ids)), {}
  for i, id in ipairs(ids) do
    if known[i] then kept[#kept + 1] = id end
  end
  if #ids - #kept > ghosts then return end -- jobs are missing: reserve will tell
  call('LPOP', WAITING, #ids)
  if #kept > 0 then call('RPUSH', FRONT, unpack(kept)) end
  return front + #kept, behind - #ids, ghosts - #ids + #kept
end

-- leave_ghosts(front, behind, ghosts, steps): counts the ghosts, and drops some while they are many
local function leave_ghosts(front, behind, ghosts, steps)
  if ghosts == front + behind then
    call('UNLINK', FRONT, WAITING)
    ghosts = 0
  end
  while steps > 0 and ghosts > (front + behind - ghosts) / 2 + 1000 do
    local ahead, rest, left = drop_ghosts(front, behind, ghosts)
    if not ahead then break end
    front, behind, ghosts, steps = ahead, rest, left, steps - 1
  end
  call('HSET', META, 'ghosts', ghosts)
end
