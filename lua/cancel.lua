-- cancel(id ...) -> per item: ok | finished | cancelled | failed | purged | unknown
-- include: answer jobs fate waiting room
local failure, answer, meta = begin('ghosts', 'capacity')
if failure then return failure end
if answer then return split(answer) end

local ids = {}
for i = 1, COUNT do ids[i] = ARGV[FIRST + i - 1] end
local jobs, corrupt = load(ids)
if corrupt then return corrupt end
for _, key in ipairs({ PAYLOADS, ERRORS }) do call('HLEN', key) end
for _, key in ipairs({ LEASES, RANKED }) do call('ZCARD', key) end
for _, key in ipairs({ RETIRED, CANCELLED }) do call('SCARD', key) end
local before = check_room(meta.capacity)
local front, behind = call('LLEN', FRONT), call('LLEN', WAITING)

local reply, gone, placed, listed = {}, {}, { f = {}, r = {} }, 0
for i, id in ipairs(ids) do
  local job = jobs[id]
  if not job then
    reply[i] = fate(id)
  elseif job.state == 'cancelled' then
    reply[i] = 'cancelled'
  else
    reply[i] = 'ok'
    gone[#gone + 1] = id
    local members = placed[job.state]
    if members then members[#members + 1] = member(id, job) else listed = listed + 1 end
    job.state = 'cancelled'
  end
end
if #gone == 0 then return refuse(reply, 'free') end
local ghosts = (meta.ghosts or 0) + listed
if ghosts > front + behind then
  return redis.error_reply('CORRUPT there are waiting jobs whose ids are in no list')
end
local time = now()

for _, key in ipairs({ JOBS, PAYLOADS, ERRORS }) do call('HDEL', key, unpack(gone)) end
if #placed.f > 0 then call('ZREM', LEASES, unpack(placed.f)) end
if #placed.r > 0 then call('ZREM', RANKED, unpack(placed.r)) end
call('SADD', RETIRED, unpack(gone))
call('SADD', CANCELLED, unpack(gone))
if listed > 0 then leave_ghosts(front, behind, ghosts, math.min(#gone, 16)) end
make_room(meta.capacity, before, #gone, time)
return finish(reply, time)
