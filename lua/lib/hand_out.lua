-- hand_out: waiting jobs become reserved ones
-- include: attempts note

-- hand_out(ids, jobs, claim, ends, limit, time) -> receipt: puts waiting jobs, taken from where they
-- waited, in flight
local function hand_out(ids, jobs, claim, ends, limit, time)
  local receipt, records, leases = {}, {}, {}
  if #ids == 0 then return receipt end
  for i, id in ipairs(ids) do
    local job = jobs[id]
    job.state, job.token, job.lease, job.worker = 'f', claim.token, claim.lease, claim.worker
    job.attempt, job.spent = plus(job.attempt, 1), plus(job.spent, 1)
    job.changed = plus(time, -job.enqueued)
    stamp(job, limit(job))
    records[2 * i - 1], records[2 * i] = id, write(job)
    leases[2 * i - 1], leases[2 * i] = ends, member(id, job)
    receipt[i] = id .. ' ' .. job.attempt
  end
  call('HSET', JOBS, unpack(records))
  call('ZADD', LEASES, unpack(leases))
  note('reserved', ids, jobs)
  return receipt
end
