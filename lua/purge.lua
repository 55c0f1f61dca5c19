-- purge(state, after, until) -> {number cancelled now, state, mark, until}: the next of the jobs that are
-- delayed, then of those that wait, and came before `until` (ms), which the first of several calls leaves
-- open. The next call goes on from that state and mark ('-' is the beginning), unless the state is 'done'.
-- include: answer page cancelling
local MOST = 250

local failure, answer, meta = begin('ghosts', 'capacity')
if failure then return failure end
if answer then return split(answer) end

local before, time = check_cancelling(meta.capacity), now()
local state, last = ARGV[FIRST], tonumber(ARGV[FIRST + 2]) or tonumber(time)
local after = ARGV[FIRST + 1] == '-' and '' or ARGV[FIRST + 1]
local corrupt, found, mark = page(state, after, MOST)
if corrupt then return corrupt end
local gone, jobs = {}, {}
for _, place in ipairs(found) do
  if not place.job then return redis.error_reply('CORRUPT job ' .. place.id .. ' has a place and no record') end
  if tonumber(place.job.enqueued) <= last then
    gone[#gone + 1], jobs[place.id] = place.id, place.job
  end
end
if mark == '' then state, mark = state == 'delayed' and 'waiting' or 'done', '-' end
local reply = { plus(#gone, 0), state, mark, plus(last, 0) }
if #gone == 0 then return refuse(reply, 'free') end
return cancel_all(gone, jobs, before, meta, time) or finish(reply, time)
