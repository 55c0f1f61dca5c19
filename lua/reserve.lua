-- reserve(woken, lease, limit, worker) -> {jobs, next due (ms), more due, void, paused, then per job: id,
-- attempt, payload, then "!id attempt reason" for each that failed}
-- include: answer chosen take reap exhaust hand_out pass_on
local MOST_REAPED = 64

local failure, answer, meta =
  begin('ghosts', 'sequence', 'lease', 'max_attempts', 'capacity', 'keep_count', 'keep_age', 'paused')
if failure then return failure end
local woken, callers_limit, time = ARGV[FIRST] == '1', tonumber(ARGV[FIRST + 2]), now()
local claim = { token = LANE .. '.' .. NUMBER, lease = ARGV[FIRST + 1], worker = ARGV[FIRST + 3] }
local lease = tonumber(claim.lease) or meta.lease

if answer then
  -- Run before, it hands out again what its token still holds, and never takes anything more: it may
  -- be an old sending that comes late. What others have cancelled or reaped since is void.
  local ids, jobs, number, failures = held(answer, claim.token)
  local payloads, missing = bodies(ids, math.huge)
  if missing then return missing end
  local soon = due(time)
  local more = (soon == '0' or not meta.paused and anything_waits()) and 1 or 0
  return handed_out(ids, jobs, payloads, { soon, more, number - #ids, meta.paused or 0 }, failures)
end

-- The limit in force: the job's own, or the queue's, or the caller's.
local function limit(job)
  return job.limit ~= '' and tonumber((string.match(job.limit, '^(%d+)!'))) or meta.max_attempts or callers_limit
end

-- First what has ended: those jobs may be waiting when the rest is looked at.
local corrupt, ended, jobs = overdue(time, MOST_REAPED)
if corrupt then return corrupt end
if #ended > 0 then check_reap(meta.capacity) end
local _, _, failures = reap(ended, jobs, time, meta)

local found, payloads, large
corrupt, found, payloads, large = chosen(meta.paused and 0 or COUNT, limit)
if corrupt then return corrupt end
if woken or lease and lease < SOON then check_bell() end
local keeps = #found.ids > 0 and (meta.keep_age or meta.keep_count)
if #found.spent > 0 or keeps then
  check_failed()
  check_room(meta.capacity)
end
corrupt = take(found, meta.ghosts or 0, #ended + #found.spent == 0)
if corrupt then return corrupt end

for _, text in ipairs(exhaust(found.spent, found.jobs, time, meta)) do failures[#failures + 1] = text end
if keeps then trim(meta, time, 0) end
local receipt = hand_out(found, claim, lease and plus(time, lease) or 'inf', time)
for _, text in ipairs(failures) do receipt[#receipt + 1] = text end
if #receipt + #ended > 0 then finish(receipt, time) else nothing_to_hand_out() end
if woken then pass_on(meta.paused) end
if #found.ids > 0 and lease and lease < SOON then ring() end
local soon = #found.ids < COUNT and due(time) or '' -- who found enough does not ask
local more = (soon == '0' or found.unfinished or large) and 1 or 0
return handed_out(found.ids, found.jobs, payloads, { soon, more, 0, meta.paused or 0 }, failures)
