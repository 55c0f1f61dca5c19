-- reserve() -> {jobs, next due (ms), more due, failed, then per job: id, attempt, payload}
-- include: request jobs
local failure, answer, ghosts = begin('ghosts')
if failure then return failure end
ghosts = ghosts or 0

local token, ids, jobs, wanted = LANE .. '.' .. NUMBER, {}, {}, COUNT
if answer then
  -- Run before: hand out again what is still held, and replace what others have cancelled since.
  wanted = 0
  for id, attempt in string.gmatch(answer, '([^, ]+) (%d+)') do
    wanted = wanted + 1
    local text = call('HGET', JOBS, id)
    local job = text and read(text)
    if job and job.state == 'f' and job.attempt == attempt and job.token == token then
      ids[#ids + 1], jobs[id] = id, job
    end
  end
end
local held = #ids

-- Look before taking: how far into each list the wanted number of waiting jobs reaches. A miss is a
-- ghost, so each further look is twice as long, up to a bound.
local used, looked, bound = { [FRONT] = 0, [WAITING] = 0 }, 0, wanted + 1000
for _, list in ipairs({ FRONT, WAITING }) do
  local more = true
  while more and #ids < wanted and looked < bound do
    local step = math.min(math.max(wanted - #ids, looked), bound - looked)
    local some = call('LRANGE', list, used[list], used[list] + step - 1)
    local found, corrupt = load(some)
    if corrupt then return corrupt end
    more = #some == step
    for _, id in ipairs(some) do
      if #ids == wanted then break end
      used[list], looked = used[list] + 1, looked + 1
      if found[id] and found[id].state == 'w' then
        ids[#ids + 1], jobs[id] = id, found[id]
      end
    end
  end
end
local reply = { #ids, '', 0, 0 }
local taken = #ids - held
local unfinished = #ids < wanted and looked == bound
local payloads = {}
call('ZCARD', LEASES)
if looked - taken > ghosts then
  return redis.error_reply('CORRUPT there are waiting ids whose jobs are missing')
elseif #ids > 0 then
  payloads = call('HMGET', PAYLOADS, unpack(ids))
  for i, id in ipairs(ids) do
    if not payloads[i] then
      return redis.error_reply('CORRUPT the payload of job ' .. id .. ' is missing')
    end
  end
elseif looked == 0 then
  call('HLEN', JOBS)
  call('HLEN', PAYLOADS)
  refuse({}, 'free')
  return reply
end

local time = now()
local left = ghosts > 0 and call('LLEN', FRONT) + call('LLEN', WAITING) - looked

for _, list in ipairs({ FRONT, WAITING }) do
  if used[list] > 0 then call('LPOP', list, used[list]) end
end
if looked > taken then
  ghosts = ghosts - looked + taken
  call('HSET', META, 'ghosts', ghosts)
end
if unfinished then
  -- Only ghosts have gone: the answer is not known yet, and the caller comes again.
  for i = #ids, held + 1, -1 do call('LPUSH', FRONT, ids[i]) end
  return redis.error_reply('AGAIN cancelled jobs stood before the waiting ones')
end
if ghosts > 0 and left == ghosts then
  call('UNLINK', FRONT, WAITING)
  call('HSET', META, 'ghosts', 0)
end

local receipt, records, leases = {}, {}, {}
for i, id in ipairs(ids) do
  local job = jobs[id]
  if i > held then
    job.state, job.token = 'f', token
    job.attempt, job.spent = plus(job.attempt, 1), plus(job.spent, 1)
    job.changed = plus(time, -job.enqueued)
    records[#records + 1], records[#records + 2] = id, write(job)
    leases[#leases + 1], leases[#leases + 2] = 'inf', member(id, job)
  end
  reply[3 * i + 2], reply[3 * i + 3], reply[3 * i + 4] = id, job.attempt, payloads[i]
  receipt[i] = id .. ' ' .. job.attempt
end
if taken > 0 then
  call('HSET', JOBS, unpack(records))
  call('ZADD', LEASES, unpack(leases))
  finish(receipt, time)
end
return reply
