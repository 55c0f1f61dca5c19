-- reserve() -> {jobs, next due (ms), more due, failed, void, then per job: id, attempt, payload}
-- include: answer held head
local failure, answer, ghosts = begin('ghosts')
if failure then return failure end
ghosts = ghosts or 0

local token = LANE .. '.' .. NUMBER
if answer then
  -- Run before, it hands out again what its token still holds, and never takes anything more: it may
  -- be an old sending that comes late. What others have cancelled since is void.
  local ids, jobs, number = held(answer, token)
  local payloads, missing = bodies(ids)
  return missing or handed_out(ids, jobs, payloads, number - #ids)
end

local ids, jobs = {}, {}
local corrupt, used, looked, unfinished = look(COUNT, ids, jobs)
if corrupt then return corrupt end
call('ZCARD', LEASES)
if looked - #ids > ghosts then
  return redis.error_reply('CORRUPT there are waiting ids whose jobs are missing')
elseif looked == 0 then
  call('HLEN', JOBS)
  call('HLEN', PAYLOADS)
  refuse({}, 'free')
  return handed_out(ids, jobs, {}, 0)
end
local payloads, missing = bodies(ids)
if missing then return missing end
local time = now()

take(used, looked - #ids, ghosts)
if unfinished then
  -- Only ghosts have gone: the answer is not known yet, and the caller comes again.
  for i = #ids, 1, -1 do call('LPUSH', FRONT, ids[i]) end
  return redis.error_reply('AGAIN cancelled jobs stood before the waiting ones')
end

local receipt, records, leases = {}, {}, {}
for i, id in ipairs(ids) do
  local job = jobs[id]
  job.state, job.token = 'f', token
  job.attempt, job.spent = plus(job.attempt, 1), plus(job.spent, 1)
  job.changed = plus(time, -job.enqueued)
  records[2 * i - 1], records[2 * i] = id, write(job)
  leases[2 * i - 1], leases[2 * i] = 'inf', member(id, job)
  receipt[i] = id .. ' ' .. job.attempt
end
if #ids > 0 then
  call('HSET', JOBS, unpack(records))
  call('ZADD', LEASES, unpack(leases))
  finish(receipt, time)
end
return handed_out(ids, jobs, payloads, 0)
