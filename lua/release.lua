-- release(id, attempt, token ...) -> per item: ok | stale N | why it is not held
-- include: answer holder bell note
local failure, answer = begin()
if failure then return failure end
if answer then return split(answer) end

local corrupt, reply, held, jobs = claims(3, function() return 'waiting' end)
if corrupt then return corrupt end
if #held == 0 then return refuse(reply, 'free') end
call('ZCARD', RANKED)
check_bell()
local time = now()

let_go(held, jobs)
note('released', held, jobs)
local records, ranks = {}, {}
for i, id in ipairs(held) do
  local job = jobs[id]
  job.state, job.token, job.lease, job.worker = 'r', '', '', ''
  job.spent, job.changed = plus(job.spent, -1), plus(time, -job.enqueued)
  records[2 * i - 1], records[2 * i] = id, write(job)
  ranks[2 * i - 1], ranks[2 * i] = rank(job, true), member(id, job)
end
call('HSET', JOBS, unpack(records))
call('ZADD', RANKED, unpack(ranks))
ring()
return finish(reply, time)
