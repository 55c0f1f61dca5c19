-- reap: leases that have ended: each was an attempt without success, and counts as a death
-- include: attempts holder room

-- overdue(time, most) -> error reply, ids, {id: job}: with a lease that has ended, the first ones first
local function overdue(time, most)
  local ids = ids_of(call('ZRANGEBYSCORE', LEASES, '-inf', time, 'LIMIT', 0, most))
  local jobs, corrupt = load(ids)
  if corrupt then return corrupt end
  for _, id in ipairs(ids) do
    if not jobs[id] or jobs[id].state ~= 'f' then
      return redis.error_reply('CORRUPT job ' .. id .. ' has a lease and is not in flight')
    end
  end
  return nil, ids, jobs
end

-- reap(ids, jobs, time, meta) -> ids that wait again, failures: after check_attempts and check_room
local function reap(ids, jobs, time, meta)
  local returned, failed, reasons, failures = {}, {}, {}, {}
  if #ids == 0 then return returned, failures end
  local before = meta.capacity and call('HLEN', JOBS)
  let_go(ids, jobs)
  for _, id in ipairs(ids) do
    local job = jobs[id]
    job.deaths = plus(job.deaths, 1)
    if used_up(job) then
      failed[#failed + 1], reasons[id] = id, 'expired'
      failures[#failures + 1] = failure_of(id, job, 'expired')
    else
      returned[#returned + 1] = id
    end
  end
  to_waiting(returned, jobs, time)
  to_failed(failed, jobs, reasons, time, meta)
  if #failed > 0 then make_room(meta.capacity, before, #failed, time) end
  return returned, failures
end

-- exhaust(ids, jobs, time, meta) -> failures: waiting jobs, taken from where they waited, whose
-- attempts are used up by the limit that is in force now; after check_failed and check_room
local function exhaust(ids, jobs, time, meta)
  if #ids == 0 then return {} end
  local reasons, failures, before = {}, {}, meta.capacity and call('HLEN', JOBS)
  for i, id in ipairs(ids) do
    reasons[id] = 'exhausted'
    failures[i] = failure_of(id, jobs[id], 'exhausted')
  end
  to_failed(ids, jobs, reasons, time, meta)
  make_room(meta.capacity, before, #ids, time)
  return failures
end

-- due(time) -> ms until the next lease ends, '' where none will
local function due(time)
  local first = call('ZRANGE', LEASES, 0, 0, 'WITHSCORES')
  if not first[2] or first[2] == 'inf' then return '' end
  return string.format('%.0f', math.max(0, first[2] - time))
end
