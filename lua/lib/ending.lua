-- ending: retry and fail: an attempt that its holder ends without success
-- include: answer holder attempts room note

-- end_attempts(verdict) -> the script's reply. The items are id, attempt, token, error, and when the job
-- is due again (see `due_of`); verdict(job) is why it fails for good, or nil.
local function end_attempts(verdict)
  local failure, answer, meta = begin('sequence', 'capacity', 'keep_count', 'keep_age')
  if failure then return failure end
  if answer then return split(answer) end

  local time, reasons = now(), {}
  local corrupt, reply, held, jobs, items = claims(5, function(job, at)
    job.due = due_of(ARGV[at + 4], time)
    return verdict(job) and 'failed' or later(job, time) and 'delayed' or 'waiting'
  end)
  if corrupt then return corrupt end
  if #held == 0 then return refuse(reply, 'free') end

  local returned, failed, errors = {}, {}, {}
  for _, id in ipairs(held) do
    local error = ARGV[FIRST + 5 * items[id] - 2]
    if error ~= '' then errors[#errors + 1], errors[#errors + 2] = id, error end
    reasons[id] = verdict(jobs[id])
    if reasons[id] then
      failed[#failed + 1] = id
      reply[items[id]] = failure_of(id, jobs[id], reasons[id])
    else
      returned[#returned + 1] = id
    end
  end
  check_join()
  if #errors > 0 then call('HLEN', ERRORS) end
  local before
  if #failed > 0 then
    check_failed()
    before = check_room(meta.capacity)
  end

  let_go(held, jobs)
  if #errors > 0 then call('HSET', ERRORS, unpack(errors)) end
  for _, id in ipairs(held) do note(reasons[id] and 'failed' or 'retried', { id }, jobs) end
  join(returned, jobs, time)
  to_failed(failed, jobs, reasons, time, meta)
  if #failed > 0 then make_room(meta.capacity, before, #failed, time) end
  return finish(reply, time)
end
