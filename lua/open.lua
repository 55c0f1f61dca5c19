-- open(codec, capacity given, capacity) -> {format, codec, capacity}: what is stored, now or already
-- include: keys
local codec, given, capacity = ARGV[1], ARGV[2], ARGV[3]
local stored = call('HMGET', META, 'format', 'codec', 'capacity')
if not stored[1] then
  if call('EXISTS', WAITING, FRONT, RANKED, DELAYED, LEASES, JOBS, PAYLOADS, FAILURES, RETIRED) > 0 then
    return redis.error_reply('CORRUPT the settings of this queue are gone, but its jobs are there')
  end
  stored = { '1', codec, given == '1' and capacity or '' }
  call('HSET', META, 'format', stored[1], 'codec', stored[2], 'capacity', stored[3])
end
return stored
