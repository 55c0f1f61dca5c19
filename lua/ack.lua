-- ack(id, attempt, token ...) -> per item: ok | stale N | waiting | delayed | finished | cancelled | unknown
-- include: answer holder
local failure, answer = begin()
if failure then return failure end
if answer then return split(answer) end

local ids = {}
for i = 1, COUNT do ids[i] = ARGV[FIRST + 3 * i - 3] end
local jobs, corrupt = load(ids)
if corrupt then return corrupt end
call('HLEN', PAYLOADS)
call('ZCARD', LEASES)
call('SCARD', RETIRED)

local reply, acked, leases, errors = {}, {}, {}, {}
for i, id in ipairs(ids) do
  local job = jobs[id]
  local why = refusal(id, job, ARGV[FIRST + 3 * i - 2], ARGV[FIRST + 3 * i - 1])
  reply[i] = why or 'ok'
  if not why then
    job.state = 'finished'
    acked[#acked + 1] = id
    leases[#leases + 1] = member(id, job)
    if job.attempt ~= '1' then errors[#errors + 1] = id end -- a first attempt follows no error
  end
end
if #acked == 0 then return refuse(reply, 'free') end
local time = now()
if #errors > 0 then call('HLEN', ERRORS) end

call('HDEL', JOBS, unpack(acked))
call('HDEL', PAYLOADS, unpack(acked))
call('ZREM', LEASES, unpack(leases))
if #errors > 0 then call('HDEL', ERRORS, unpack(errors)) end
call('SADD', RETIRED, unpack(acked))
return finish(reply, time)
