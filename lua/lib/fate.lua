-- fate: fate(id) is why an id that is not active cannot be: unknown, finished, cancelled, failed or
-- purged. CANCELLED holds the retired ids that were not acknowledged, those that failed after a '!'.
-- include: keys
local function fate(id)
  if call('SISMEMBER', RETIRED, id) == 0 then
    return 'unknown'
  end
  local how = call('SMISMEMBER', CANCELLED, id, '!' .. id)
  if how[2] == 1 then
    return call('HEXISTS', FAILURES, id) == 1 and 'failed' or 'purged'
  end
  return how[1] == 1 and 'cancelled' or 'finished'
end
