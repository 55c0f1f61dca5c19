-- bell: ring() wakes one waiting reserve. One ring in the bell is enough for all, since whoever was
-- woken rings again if it leaves work behind.
-- include: keys
--
-- A waiter sleeps at most SOON ms before it looks again, so it knows of all leases that end sooner but
-- those that are given meanwhile: they are rung for.
local SOON = 2000

local rings

-- check_bell(): its type, before anything is written
local function check_bell()
  rings = call('LLEN', BELL)
end

local function ring()
  if not rings then check_bell() end
  if rings == 0 then rings = call('RPUSH', BELL, '') end
end
