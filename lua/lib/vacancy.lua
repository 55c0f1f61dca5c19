-- vacancy: the room that new jobs may take
-- include: room

-- vacancy(capacity, woken, wanted, time) -> room (nil where it is unbounded), whether the caller, who
-- was woken, has a promise. Room that is promised to others is none.
local function vacancy(capacity, woken, wanted, time)
  if not capacity and not woken then return nil, false end
  call('LLEN', ROOM) -- of the right type, before anything is written
  local own = woken and call('LLEN', PROMISED) > 0
  if not capacity then return nil, own end
  local room = capacity - call('HLEN', JOBS)
  if room >= wanted + MOST_RINGS then return room, own end
  return room - math.max(0, promised(time) - (own and 1 or 0)), own
end

-- full(capacity, more, later) -> the answer to a job for which there is no room, once `more` have come, of
-- which so many are delayed
local function full(capacity, more, later)
  local active, delayed, in_flight = call('HLEN', JOBS) + more, call('ZCARD', DELAYED) + later, call('ZCARD', LEASES)
  return string.format('full %.0f %.0f %.0f %.0f', active - delayed - in_flight, delayed, in_flight, capacity)
end

-- take_room(room, own, time): after jobs were accepted, or refused to one who was woken, with `room`
-- left. Promises whose time is over are dropped; who was woken and leaves room rings for the next.
local function take_room(room, own, time)
  if own then
    call('LPOP', PROMISED)
    if call('LLEN', ROOM) == 0 then call('RPUSH', ROOM, time) end
  end
  if not room or room >= MOST_RINGS then return end
  local oldest = call('LINDEX', PROMISED, 0)
  while oldest and not binds(oldest, time) do
    call('LPOP', PROMISED)
    oldest = call('LINDEX', PROMISED, 0)
  end
  if room <= 0 then
    call('DEL', ROOM)
  else
    call('LTRIM', ROOM, 0, room - 1)
  end
end
