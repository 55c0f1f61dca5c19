-- pass_on: a ring that was taken, by a waiter that leaves work behind
-- include: bell

-- anything_waits(): whether jobs wait
local function anything_waits()
  return call('LLEN', FRONT) + call('LLEN', WAITING) + call('ZCARD', RANKED) > 0
end

-- pass_on(paused): rings for the next waiter, where there is something for it to do
local function pass_on(paused)
  if not paused and anything_waits() then ring() end
end
