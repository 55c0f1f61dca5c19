-- waiting: the order of the waiting jobs is FRONT, then WAITING
-- include: jobs
--
-- A waiting job that is cancelled or rescheduled leaves a ghost behind (see `stands`), counted in META:
-- whoever meets it drops it. Where no job waits the lists are empty.
local STEP = 128

-- drop_ghosts(front, behind, ghosts): once they are many, a step of dropping them: jobs move from the
-- head of WAITING to the tail of FRONT, and when WAITING is used up FRONT takes its place and the
-- walk starts over. -> members of FRONT, of WAITING, ghosts left; nothing where it must not go on
local function drop_ghosts(front, behind, ghosts)
  if behind == 0 then
    call('RENAME', FRONT, WAITING)
    front, behind = 0, front
  end
  local some, kept = call('LRANGE', WAITING, 0, STEP - 1), {}
  local ids = ids_of(some)
  local records = call('HMGET', JOBS, unpack(ids))
  for i, text in ipairs(some) do
    local sequence = records[i] and listed_as(records[i])
    if sequence and place(ids[i], sequence) == text then kept[#kept + 1] = text end
  end
  if #some - #kept > ghosts then return end -- jobs are missing: reserve will tell
  call('LPOP', WAITING, #some)
  if #kept > 0 then call('RPUSH', FRONT, unpack(kept)) end
  return front + #kept, behind - #some, ghosts - #some + #kept
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
