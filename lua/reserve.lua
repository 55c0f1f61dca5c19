-- reserve() -> {jobs, next due (ms), more due, failed, then per job: id, attempt, payload}
-- include: answer held head
local failure, answer, ghosts = begin('ghosts')
if failure then return failure end
ghosts = ghosts or 0

-- Run before, it hands out again what is still held, and replaces what others have cancelled since.
local token, ids, jobs, wanted = LANE .. '.' .. NUMBER, {}, {}, COUNT
if answer then ids, jobs, wanted = held(answer, token) end
local again = #ids

local corrupt, used, looked, unfinished = look(wanted, ids, jobs)
if corrupt then return corrupt end
local taken, reply = #ids - again, { #ids, '', 0, 0 }
call('ZCARD', LEASES)
if looked - taken > ghosts then
  return redis.error_reply('CORRUPT there are waiting ids whose jobs are missing')
elseif #ids == 0 and looked == 0 then
  call('HLEN', JOBS)
  call('HLEN', PAYLOADS)
  refuse({}, 'free')
  return reply
end
local payloads = #ids > 0 and call('HMGET', PAYLOADS, unpack(ids)) or {}
for i, id in ipairs(ids) do
  if not payloads[i] then
    return redis.error_reply('CORRUPT the payload of job ' .. id .. ' is missing')
  end
end
local time = now()

take(used, looked - taken, ghosts)
if unfinished then
  -- Only ghosts have gone: the answer is not known yet, and the caller comes again.
  for i = #ids, again + 1, -1 do call('LPUSH', FRONT, ids[i]) end
  return redis.error_reply('AGAIN cancelled jobs stood before the waiting ones')
end

local receipt, records, leases = {}, {}, {}
for i, id in ipairs(ids) do
  local job = jobs[id]
  if i > again then
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
