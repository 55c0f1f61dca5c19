-- held: the jobs that a reserve hands out
-- include: jobs

-- held(answer, token) -> ids, {id: job}, number: of the jobs that were answered in the first run,
-- those that the claim token still holds; and how many were answered
local function held(answer, token)
  local ids, jobs, number = {}, {}, 0
  for id, attempt in string.gmatch(answer, '([^, ]+) (%d+)') do
    number = number + 1
    local text = call('HGET', JOBS, id)
    local job = text and read(text)
    if job and job.state == 'f' and job.attempt == attempt and job.token == token then
      ids[#ids + 1], jobs[id] = id, job
    end
  end
  return ids, jobs, number
end

-- bodies(ids) -> payloads, or nil and an error reply
local function bodies(ids)
  local payloads = #ids > 0 and call('HMGET', PAYLOADS, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    if not payloads[i] then
      return nil, redis.error_reply('CORRUPT the payload of job ' .. id .. ' is missing')
    end
  end
  return payloads
end

-- handed_out(ids, {id: job}, payloads, void): the reply
local function handed_out(ids, jobs, payloads, void)
  local reply = { #ids, '', 0, 0, void }
  for i, id in ipairs(ids) do
    reply[3 * i + 3], reply[3 * i + 4], reply[3 * i + 5] = id, jobs[id].attempt, payloads[i]
  end
  return reply
end
