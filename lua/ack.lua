-- ack(id, attempt, token ...) -> per item: ok | stale N | why it is not held
-- include: answer holder room note
local failure, answer, meta = begin('capacity')
if failure then return failure end
if answer then return split(answer) end

local corrupt, reply, acked, jobs = claims(3, function() return 'finished' end, not noted and glance)
if corrupt then return corrupt end
call('HLEN', PAYLOADS)
call('SCARD', RETIRED)
local before = check_room(meta.capacity)
local errors = {}
for _, id in ipairs(acked) do
  if jobs[id].attempt ~= '1' then errors[#errors + 1] = id end -- a first attempt follows no error
end
if #acked == 0 then return refuse(reply, 'free') end
if #errors > 0 then call('HLEN', ERRORS) end
local time = now()

let_go(acked, jobs)
call('HDEL', JOBS, unpack(acked))
call('HDEL', PAYLOADS, unpack(acked))
if #errors > 0 then call('HDEL', ERRORS, unpack(errors)) end
call('SADD', RETIRED, unpack(acked))
note('acked', acked, jobs)
make_room(meta.capacity, before, #acked, time)
return finish(reply, time)
