-- failed(start, count) -> per job, the last one first: id, record, payload, error
-- include: jobs
local MOST_BYTES = 4194304

local stored = call('HGET', META, 'format')
if stored ~= '1' then
  return redis.error_reply(stored and 'NEWFORMAT ' .. stored or 'NOQUEUE')
end
local start = tonumber(ARGV[1])
local ids = ids_of(call('ZREVRANGE', FAILED, start, start + ARGV[2] - 1))
local reply, bytes = {}, 0
for _, id in ipairs(ids) do
  local record, payload = call('HGET', FAILURES, id), call('HGET', PAYLOADS, id)
  if not record or not payload then
    return redis.error_reply('CORRUPT the record or payload of failed job ' .. id .. ' is missing')
  end
  bytes = bytes + #payload
  if bytes > MOST_BYTES and #reply > 0 then break end
  for _, text in ipairs({ id, record, payload, call('HGET', ERRORS, id) or '' }) do reply[#reply + 1] = text end
end
return reply
