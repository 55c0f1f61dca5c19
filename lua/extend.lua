-- extend(id, attempt, token, lease ...) -> per item: ok | stale N | why it is not held; lease: ms, '' the queue's
-- include: answer holder bell
local failure, answer, meta = begin('lease')
if failure then return failure end
if answer then return split(answer) end

local corrupt, reply, held, jobs, items = claims(4, function() return 'f' end)
if corrupt then return corrupt end
if #held == 0 then return refuse(reply, 'free') end
call('LLEN', BELL)
local time = now()
local leases, soon = {}, false
for i, id in ipairs(held) do
  local lease = tonumber(ARGV[FIRST + 4 * items[id] - 1]) or meta.lease
  if not lease and call('ZSCORE', LEASES, member(id, jobs[id])) ~= 'inf' then
    return redis.error_reply('NOLEASE job ' .. id .. ' has a lease, and the queue has none')
  end
  leases[2 * i - 1], leases[2 * i] = lease and plus(time, lease) or 'inf', member(id, jobs[id])
  soon = soon or (lease and lease < SOON)
end

let_go(held, jobs)
call('ZADD', LEASES, unpack(leases))
if soon then ring() end
return finish(reply, time)
