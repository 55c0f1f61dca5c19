-- settings() -> {format, codec, capacity, lease, max_attempts, keep_count, keep_age, history}; '' for none
-- include: keys
local stored = call('HMGET', META, 'format', 'codec', 'capacity', 'lease', 'max_attempts', 'keep_count', 'keep_age',
  'history')
if not stored[1] then
  return redis.error_reply('NOQUEUE this queue does not exist')
end
for i = 4, 8 do stored[i] = stored[i] or '' end -- what came with a later version
return stored
