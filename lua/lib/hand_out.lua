-- hand_out: waiting jobs become reserved ones
-- include: attempts note

-- hand_out(ids, jobs, claim, ends, time) -> receipt: puts waiting jobs, taken from where they waited, in
-- flight: sketches of jobs (see `record`), with the limit in force
local function hand_out(ids, jobs, claim, ends, time)
  local receipt, records, leases = {}, {}, {}
  if #ids == 0 then return receipt end
  local held = ' ' .. claim.token .. ' ' .. claim.lease .. ' ' .. claim.worker
  local next_of, age_of = {}, {} -- of numbers, and of moments: many are the same
  for i, id in ipairs(ids) do
    local job = jobs[id]
    local attempt, spent, since = job.attempt, job.spent, job.enqueued
    next_of[attempt] = next_of[attempt] or plus(attempt, 1)
    next_of[spent] = next_of[spent] or plus(spent, 1)
    age_of[since] = age_of[since] or plus(time, -since)
    job.attempt = next_of[attempt]
    if noted then job.worker = claim.worker end
    records[2 * i - 1], records[2 * i] = id, '1f ' .. job.attempt .. ' ' .. next_of[spent] .. ' '
      .. job.deaths .. ' ' .. job.limit .. ' ' .. job.rest .. ' ' .. age_of[since] .. held
    leases[2 * i - 1], leases[2 * i] = ends, member(id, job)
    receipt[i] = id .. ' ' .. job.attempt
  end
  call('HSET', JOBS, unpack(records))
  call('ZADD', LEASES, unpack(leases))
  note('reserved', ids, jobs)
  return receipt
end
