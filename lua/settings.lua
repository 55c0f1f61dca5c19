-- settings() -> {format, codec, capacity}
-- include: keys
local stored = call('HMGET', META, 'format', 'codec', 'capacity')
if not stored[1] then
  return redis.error_reply('NOQUEUE this queue does not exist')
end
return stored
