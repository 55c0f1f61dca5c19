-- extend(id, attempt, token, lease ...) -> per item: ok | stale N | why it is not held; lease: ms, '' the queue's
-- include: answer holder bell
local failure, answer, meta = begin('lease')
if failure then return failure end
if answer then return split(answer) end

local corrupt, reply, held, jobs = claims(4, function() return 'f' end)
if corrupt then return corrupt end
if #held == 0 then return refuse(reply, 'free') end
call('LLEN', BELL)
local time = now()
local ends, leases, soon = {}, {}, false
for i = 1, COUNT do
  local id, lease = ARGV[FIRST + 4 * i - 4], tonumber(ARGV[FIRST + 4 * i - 1]) or meta.lease
  if reply[i] == 'ok' then
    if not lease and (ends[id] or call('ZSCORE', LEASES, member(id, jobs[id]))) ~= 'inf' then
      return redis.error_reply('NOLEASE job ' .. id .. ' has a lease, and the queue has none')
    end
    ends[id] = lease and plus(time, lease) or 'inf'
    soon = soon or (lease and lease < SOON)
  end
end
for id, time_of_end in pairs(ends) do
  leases[#leases + 1] = time_of_end
  leases[#leases + 1] = member(id, jobs[id])
end

let_go(held, jobs)
call('ZADD', LEASES, unpack(leases))
if soon then ring() end
return finish(reply, time)
