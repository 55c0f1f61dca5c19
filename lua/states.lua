-- states(id ...) -> {active jobs, per id: waiting | delayed | in_flight | fate}
-- include: holder
local stored = call('HGET', META, 'format')
if stored ~= '1' then
  return redis.error_reply(stored and 'NEWFORMAT ' .. stored or 'NOQUEUE')
end
local jobs, corrupt = load(ARGV)
if corrupt then return corrupt end
local reply = { call('HLEN', JOBS) }
for i, id in ipairs(ARGV) do
  reply[i + 1] = state_of(id, jobs[id])
end
return reply
