-- fate: fate(id) is why an id that is not active cannot be: finished, cancelled or unknown
-- include: keys
local function fate(id)
  if call('SISMEMBER', RETIRED, id) == 0 then
    return 'unknown'
  end
  return call('SISMEMBER', CANCELLED, id) == 1 and 'cancelled' or 'finished'
end
