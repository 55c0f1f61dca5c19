-- looking: what every script that changes nothing begins with
-- include: keys

-- looking(field, ...) -> error reply, the texts of these fields of META
local function looking(...)
  local stored = call('HMGET', META, 'format', ...)
  if stored[1] == '1' then return nil, { unpack(stored, 2) } end
  return redis.error_reply(stored[1] and 'NEWFORMAT ' .. stored[1] or 'NOQUEUE')
end
