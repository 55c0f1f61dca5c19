-- held: what a reserve answers, now or again
-- include: jobs answer
local SOME = 16

-- held(answer, token) -> ids, {id: job}, how many were answered, failures: of what was answered in
-- the first run, what the claim token still holds
local function held(answer, token)
  local ids, jobs, number, failures = {}, {}, 0, {}
  for item in string.gmatch(answer, '[^,]+') do
    local id, attempt = string.match(item, '^([^! ]+) (%d+)$')
    if id then
      number = number + 1
      local text = call('HGET', JOBS, id)
      local job = text and read(text)
      if job and job.state == 'f' and job.attempt == attempt and job.token == token then
        ids[#ids + 1], jobs[id] = id, job
      end
    else
      failures[#failures + 1] = item
    end
  end
  return ids, jobs, number, failures
end

-- bodies(ids, most) -> payloads, or nil and an error reply: some at a time, until they are over so many bytes
local function bodies(ids, most)
  local payloads, bytes, at = {}, 0, 0
  while at < #ids and bytes <= most do
    local some = call('HMGET', PAYLOADS, unpack(ids, at + 1, math.min(at + SOME, #ids)))
    for i = 1, #some do
      at = at + 1
      if not some[i] then
        return nil, redis.error_reply('CORRUPT the payload of job ' .. ids[at] .. ' is missing')
      end
      payloads[at], bytes = some[i], bytes + #some[i]
    end
  end
  return payloads
end

-- handed_out(ids, {id: job}, payloads, {next due, more due, void, paused}, failures): the reply
local function handed_out(ids, jobs, payloads, facts, failures)
  local reply = { #ids, unpack(facts) }
  for i, id in ipairs(ids) do
    reply[3 * i + 3], reply[3 * i + 4], reply[3 * i + 5] = id, jobs[id].attempt, payloads[i]
  end
  for _, text in ipairs(failures) do reply[#reply + 1] = text end
  return reply
end

-- nothing_to_hand_out(): checks what the reserve of a job would, and leaves a receipt if it must
local function nothing_to_hand_out()
  call('HLEN', JOBS)
  call('HLEN', PAYLOADS)
  refuse({}, 'free')
end
