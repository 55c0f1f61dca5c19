-- retry(id, attempt, token, error ...) -> per item: ok | stale N | waiting | delayed | finished | cancelled | unknown
-- include: answer holder
local failure, answer = begin('sequence')
if failure then return failure end
if answer then return split(answer) end

local ids = {}
for i = 1, COUNT do ids[i] = ARGV[FIRST + 4 * i - 4] end
local jobs, corrupt = load(ids)
if corrupt then return corrupt end
call('ZCARD', LEASES)
call('LLEN', WAITING)

local reply, returned, leases, errors = {}, {}, {}, {}
for i, id in ipairs(ids) do
  local job, at = jobs[id], FIRST + 4 * i - 4
  local why = refusal(id, job, ARGV[at + 1], ARGV[at + 2])
  reply[i] = why or 'ok'
  if not why then
    job.state = 'w'
    returned[#returned + 1] = id
    leases[#leases + 1] = member(id, job)
    if ARGV[at + 3] ~= '' then
      errors[#errors + 1] = id
      errors[#errors + 1] = ARGV[at + 3]
    end
  end
end
if #returned == 0 then return refuse(reply, 'free') end
if #errors > 0 then call('HLEN', ERRORS) end
local time = now()

call('ZREM', LEASES, unpack(leases))
local sequence = call('HINCRBY', META, 'sequence', #returned) - #returned
local records = {}
for i, id in ipairs(returned) do
  local job = jobs[id]
  job.sequence, job.token, job.worker = plus(sequence, i), '', ''
  job.changed = plus(time, -job.enqueued)
  records[2 * i - 1], records[2 * i] = id, write(job)
end
call('HSET', JOBS, unpack(records))
call('RPUSH', WAITING, unpack(returned))
if #errors > 0 then call('HSET', ERRORS, unpack(errors)) end
return finish(reply, time)
