-- room: for whom a full queue has room again
-- include: keys
--
-- An enqueue that waits sleeps by moving a ring from ROOM to PROMISED. Where a queue was full, each
-- job that leaves pushes a ring: the time. A ring in PROMISED is room that is kept, for a second, for
-- the waiter that it has woken: else whoever asks all the time would always be there before it.
local KEPT, MOST_RINGS = 1000, 64

-- binds(rung, time): whether a promise still holds; none does that a clock set back would let last
local function binds(rung, time)
  return time - rung >= 0 and time - rung < KEPT
end

-- promised(time): how much room is kept for others
local function promised(time)
  local number = 0
  for _, rung in ipairs(call('LRANGE', PROMISED, 0, MOST_RINGS - 1)) do
    if binds(rung, time) then number = number + 1 end
  end
  return number
end

-- check_room(capacity) -> jobs active before any has left, where there is a capacity
local function check_room(capacity)
  if not capacity then return end
  call('LLEN', ROOM)
  call('LLEN', PROMISED)
  return call('HLEN', JOBS)
end

-- make_room(capacity, before, number, time): rings, after that many jobs have left a queue which had
-- `before` of them
local function make_room(capacity, before, number, time)
  if not capacity or before + call('LLEN', PROMISED) < capacity then return end
  local free = capacity - call('HLEN', JOBS) - promised(time)
  for _ = call('LLEN', ROOM) + 1, math.min(free, number, MOST_RINGS) do call('RPUSH', ROOM, time) end
end
