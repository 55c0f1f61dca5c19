-- counts() -> {waiting, delayed, in flight, failed, retired, capacity, paused, oldest (ms)}; '' for none
-- include: looking oldest clock
local failure, meta = looking('capacity', 'paused')
if failure then return failure end

local since, corrupt = oldest()
if corrupt then return corrupt end
local active, delayed, in_flight = call('HLEN', JOBS), call('ZCARD', DELAYED), call('ZCARD', LEASES)
local age = since and string.format('%.0f', math.max(0, now() - since)) or ''
return {
  active - delayed - in_flight, delayed, in_flight, call('ZCARD', FAILED), call('SCARD', RETIRED),
  meta[1] or '', meta[2] or '', age,
}
