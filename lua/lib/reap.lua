-- reap: what becomes of jobs whose lease or delay has ended. An ended lease was an attempt without success,
-- and counts as a death.
-- include: attempts due room note

-- check_reap(capacity): the types of the keys that are written below, before anything is
local function check_reap(capacity)
  check_join()
  check_failed()
  check_room(capacity)
end

-- reap(ids, jobs, time, meta) -> ids that expired and wait again, ids that were delayed, failures
local function reap(ids, jobs, time, meta)
  local expired, promoted, failed, waiting, reasons, failures = {}, {}, {}, {}, {}, {}
  if #ids == 0 then return expired, promoted, failures end
  local before = meta.capacity and call('HLEN', JOBS)
  for _, id in ipairs(ids) do
    local job = jobs[id]
    local held = job.state == 'f'
    call('ZREM', held and LEASES or DELAYED, member(id, job))
    note(held and 'expired' or 'promoted', { id }, jobs)
    if held then job.deaths = plus(job.deaths, 1) end
    if held and used_up(job) then
      failed[#failed + 1], reasons[id] = id, 'expired'
      note('failed', { id }, jobs)
      failures[#failures + 1] = failure_of(id, job, 'expired')
    else
      local kind = held and expired or promoted
      kind[#kind + 1], waiting[#waiting + 1] = id, id
    end
  end
  join(waiting, jobs, time)
  to_failed(failed, jobs, reasons, time, meta)
  if #failed > 0 then make_room(meta.capacity, before, #failed, time) end
  return expired, promoted, failures
end
