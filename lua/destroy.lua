-- destroy() -> {ok}: ends the queue's lifetime, every key of it gone
-- include: keys
local format = redis.pcall('HGET', META, 'format') -- a key of a wrong type goes, too
if type(format) == 'string' and format ~= '1' then
  return redis.error_reply('NEWFORMAT ' .. format)
end
call('UNLINK', unpack(KEYS))
return { 'ok' }
