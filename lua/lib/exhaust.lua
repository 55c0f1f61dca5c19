-- exhaust: jobs that come to the head with their attempts used up, by the limit that is in force now
-- include: failed room note

-- exhaust(ids, jobs, time, meta) -> failures: waiting jobs, taken from where they waited; after
-- check_failed and check_room
local function exhaust(ids, jobs, time, meta)
  if #ids == 0 then return {} end
  local reasons, failures, before = {}, {}, meta.capacity and call('HLEN', JOBS)
  for i, id in ipairs(ids) do
    reasons[id] = 'exhausted'
    failures[i] = failure_of(id, jobs[id], 'exhausted')
  end
  to_failed(ids, jobs, reasons, time, meta)
  note('failed', ids, jobs)
  make_room(meta.capacity, before, #ids, time)
  return failures
end
