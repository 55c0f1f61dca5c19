-- open(codec, capacity, lease, max_attempts, keep_count, keep_age, history) -> {format, then these}: what is
-- stored, now or already; '' for none
-- include: keys
local stored = call('HMGET', META, 'format', 'codec', 'capacity', 'lease', 'max_attempts', 'keep_count', 'keep_age',
  'history')
if not stored[1] then
  if call('EXISTS', WAITING, FRONT, RANKED, DELAYED, LEASES, JOBS, PAYLOADS, FAILURES, RETIRED) > 0 then
    return redis.error_reply('CORRUPT the settings of this queue are gone, but its jobs are there')
  end
  stored = { '1', unpack(ARGV) }
  call('HSET', META, 'format', stored[1], 'codec', stored[2], 'capacity', stored[3], 'lease', stored[4],
    'max_attempts', stored[5], 'keep_count', stored[6], 'keep_age', stored[7], 'history', stored[8])
end
for i = 4, 8 do stored[i] = stored[i] or '' end -- what came with a later version
return stored
