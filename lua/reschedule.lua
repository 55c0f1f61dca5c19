-- reschedule(id, due, priority ...) -> per item: ok | in_flight | why it is not active; '' leaves what is
-- include: answer holder join waiting note
local failure, answer, meta = begin('sequence', 'ghosts')
if failure then return failure end
if answer then return split(answer) end

local ids = {}
for i = 1, COUNT do ids[i] = ARGV[FIRST + 3 * i - 3] end
local jobs, corrupt = load(ids)
if corrupt then return corrupt end
check_join()
local reply, moving = {}, false
for i, id in ipairs(ids) do
  reply[i] = jobs[id] and jobs[id].state ~= 'f' and 'ok' or state_of(id, jobs[id])
  moving = moving or reply[i] == 'ok'
end
if not moving then return refuse(reply, 'free') end
local time, ghosts = now(), meta.ghosts or 0
if ghosts > call('LLEN', FRONT) + call('LLEN', WAITING) then
  return redis.error_reply('CORRUPT there are waiting jobs whose ids are in no list')
end

call('HDEL', META, '') -- without effect: a full server takes what begins by freeing
local left = 0
for i, id in ipairs(ids) do
  local job, due, priority = jobs[id], ARGV[FIRST + 3 * i - 2], ARGV[FIRST + 3 * i - 1]
  if reply[i] == 'ok' then
    if priority ~= '' then job.priority = priority end
    note('rescheduled', { id }, jobs)
    if due == '' and job.state == 'd' then
      call('HSET', JOBS, id, write(job))
    else
      if job.state == 'w' then
        left = left + 1
      else
        call('ZREM', job.state == 'd' and DELAYED or RANKED, member(id, job))
      end
      job.due = due_of(due, time)
      join({ id }, jobs, time)
    end
  end
end
if left > 0 then leave_ghosts(call('LLEN', FRONT), call('LLEN', WAITING), ghosts + left, math.ceil(left / 32)) end
return finish(reply, time)
