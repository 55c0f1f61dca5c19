-- extend(id, attempt, token, lease ...) -> per item: ok | stale N | why it is not held; lease: ms, '' for
-- the reservation's own, or else the queue's
-- include: answer holder bell
local failure, answer, meta = begin('lease')
if failure then return failure end
if answer then return split(answer) end

local corrupt, reply, held, jobs = claims(4, function() end)
if corrupt then return corrupt end
if #held == 0 then return refuse(reply, 'free') end
check_bell()
local time = now()
local ends, records, soon = {}, {}, false
for i = 1, COUNT do
  local id, given = ARGV[FIRST + 4 * i - 4], ARGV[FIRST + 4 * i - 1]
  local job = jobs[id]
  if reply[i] == 'ok' then
    if given ~= '' and given ~= job.lease then
      job.lease = given
      records[id] = job
    end
    local lease = tonumber(job.lease) or meta.lease
    ends[id] = lease and plus(time, lease) or 'inf'
    soon = soon or (lease and lease < SOON)
  end
end

let_go(held, jobs)
local leases, changed = {}, {}
for id, time_of_end in pairs(ends) do
  leases[#leases + 1] = time_of_end
  leases[#leases + 1] = member(id, jobs[id])
end
for id, job in pairs(records) do
  changed[#changed + 1] = id
  changed[#changed + 1] = write(job)
end
if #changed > 0 then call('HSET', JOBS, unpack(changed)) end
call('ZADD', LEASES, unpack(leases))
if soon then ring() end
return finish(reply, time)
