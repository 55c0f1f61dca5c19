-- reap() -> {next due (ms), more due, then per job: its id where its lease ended and it waits again, "*id"
-- where its delay did, "!id attempt reason" where it failed}
-- include: answer reap
local MOST = 250

local failure, answer, meta = begin('sequence', 'capacity', 'keep_count', 'keep_age')
if failure then return failure end
local time = now()
local reply = answer and split(answer)
if not reply then
  local corrupt, ids, jobs = overdue(time, MOST)
  if corrupt then return corrupt end
  check_reap(meta.capacity)
  local promoted, failures
  reply, promoted, failures = reap(ids, jobs, time, meta)
  for _, id in ipairs(promoted) do reply[#reply + 1] = '*' .. id end
  for _, text in ipairs(failures) do reply[#reply + 1] = text end
  trim(meta, time, 0)
  if #ids > 0 then finish(reply, time) else refuse(reply, 'free') end
end
local soon = due(time)
table.insert(reply, 1, soon)
table.insert(reply, 2, soon == '0' and 1 or 0)
return reply
