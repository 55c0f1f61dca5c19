-- cancel(id ...) -> per item: ok | finished | cancelled | unknown
-- include: answer jobs fate waiting
local failure, answer, ghosts = begin('ghosts')
if failure then return failure end
if answer then return split(answer) end

local ids = {}
for i = 1, COUNT do ids[i] = ARGV[FIRST + i - 1] end
local jobs, corrupt = load(ids)
if corrupt then return corrupt end
call('HLEN', PAYLOADS)
call('HLEN', ERRORS)
call('ZCARD', LEASES)
call('SCARD', RETIRED)
call('SCARD', CANCELLED)
local front, behind = call('LLEN', FRONT), call('LLEN', WAITING)

local reply, gone, leases = {}, {}, {}
for i, id in ipairs(ids) do
  local job = jobs[id]
  if not job then
    reply[i] = fate(id)
  elseif job.state == 'cancelled' then
    reply[i] = 'cancelled'
  else
    reply[i] = 'ok'
    gone[#gone + 1] = id
    if job.state == 'f' then leases[#leases + 1] = member(id, job) end
    job.state = 'cancelled'
  end
end
if #gone == 0 then return refuse(reply, 'free') end
if (ghosts or 0) + #gone - #leases > front + behind then
  return redis.error_reply('CORRUPT there are waiting jobs whose ids are in no list')
end
local time = now()

call('HDEL', JOBS, unpack(gone))
call('HDEL', PAYLOADS, unpack(gone))
call('HDEL', ERRORS, unpack(gone))
if #leases > 0 then call('ZREM', LEASES, unpack(leases)) end
call('SADD', RETIRED, unpack(gone))
call('SADD', CANCELLED, unpack(gone))
if #gone > #leases then
  leave_ghosts(front, behind, (ghosts or 0) + #gone - #leases, math.min(#gone, 16))
end
return finish(reply, time)
