-- reap() -> {next due (ms), more due, then per job: its id if it waits again, else "!id attempt reason"}
-- include: answer reap
local MOST = 250

local failure, answer, meta = begin('sequence', 'capacity', 'keep_count', 'keep_age')
if failure then return failure end
local time = now()
local reply = answer and split(answer)
if not reply then
  local corrupt, ids, jobs = overdue(time, MOST)
  if corrupt then return corrupt end
  check_attempts()
  check_room(meta.capacity)
  local failures
  reply, failures = reap(ids, jobs, time, meta)
  for _, text in ipairs(failures) do reply[#reply + 1] = text end
  trim(meta, time)
  if #ids > 0 then finish(reply, time) else refuse(reply, 'free') end
end
local soon = due(time)
table.insert(reply, 1, soon)
table.insert(reply, 2, soon == '0' and 1 or 0)
return reply
