-- hand_out: waiting jobs become reserved ones
-- include: attempts note

-- hand_out(found, claim, ends, time) -> receipt: puts waiting jobs, taken from where they waited, in flight
local function hand_out(found, claim, ends, time)
  local receipt, records, leases = {}, {}, {}
  if #found.ids == 0 then return receipt end
  local last, rest, attempt
  for i, id in ipairs(found.ids) do
    local job = found.jobs[id]
    if job ~= last then
      last, attempt = job, plus(job.attempt, 1)
      job.state, job.attempt, job.spent, job.changed = 'f', attempt, plus(job.spent, 1), plus(time, -job.enqueued)
      job.token, job.lease, job.worker = claim.token, claim.lease, claim.worker
      rest = rest_of(job)
    end
    records[2 * i - 1], records[2 * i] = id, found.sequences[i] .. rest
    leases[2 * i - 1], leases[2 * i] = ends, found.members[i]
    receipt[i] = id .. ' ' .. attempt
  end
  call('HSET', JOBS, unpack(records))
  call('ZADD', LEASES, unpack(leases))
  note('reserved', found.ids, found.jobs)
  return receipt
end
