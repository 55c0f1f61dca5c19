-- view: jobs as they are told to whoever looks at them
-- include: keys
local MOST_BYTES = 4194304

-- view(ids, ends, payloads) -> error reply, per job five texts: its id, its record (of a failed one behind the
-- reason), when its delay or lease ends (ms; 'inf' for never, '' for none), its payload if they are asked
-- for by '1', its error. As many jobs as fit into the bound with their payloads, the first one anyway.
local function view(ids, ends, payloads)
  if #ids == 0 then return nil, {} end
  local active, failed = call('HMGET', JOBS, unpack(ids)), call('HMGET', FAILURES, unpack(ids))
  local errors, reply, bytes = call('HMGET', ERRORS, unpack(ids)), {}, 0
  for i, id in ipairs(ids) do
    local record, data = active[i] or failed[i], payloads ~= '1' and '' or call('HGET', PAYLOADS, id)
    if not record or not data then
      return redis.error_reply('CORRUPT the record or payload of job ' .. id .. ' is missing')
    end
    bytes = bytes + #data
    if bytes > MOST_BYTES and i > 1 then break end
    for _, text in ipairs({ id, record, ends[i] or '', data, errors[i] or '' }) do reply[#reply + 1] = text end
  end
  return nil, reply
end
