-- join: active jobs, out of every list and sorted set, take their place: delayed, or at the tail of waiting
-- include: jobs bell

-- due_of(text, time) -> ms: '+ms' is from now on, 'ms' is by the clock; '' is nil
local function due_of(text, time)
  if text == '' then return end
  return string.sub(text, 1, 1) == '+' and time + string.sub(text, 2) or tonumber(text)
end

-- later(job, time): whether it is due after that
local function later(job, time)
  return job.due and job.due > tonumber(time)
end

-- check_join(): the types of the keys that are written below, before anything is
local function check_join()
  call('LLEN', WAITING)
  call('LLEN', BELL)
  call('ZCARD', RANKED)
  call('ZCARD', DELAYED)
end

-- join(ids, jobs, time): in this order. A job whose `due` (ms) is later than now is delayed until then.
local function join(ids, jobs, time)
  if #ids == 0 then return end
  local sequence, soon = call('HINCRBY', META, 'sequence', #ids) - #ids, false
  local records, listed, ranked, delayed = {}, {}, {}, {}
  for i, id in ipairs(ids) do
    local job = jobs[id]
    job.sequence, job.changed = plus(sequence, i), time == job.enqueued and '0' or plus(time, -job.enqueued)
    job.token, job.lease, job.worker = '', '', ''
    local text = member(id, job)
    if later(job, time) then
      job.state = 'd'
      delayed[#delayed + 1], delayed[#delayed + 2] = plus(job.due, 0), text
      soon = soon or job.due < time + SOON
    elseif job.priority == '0' then
      job.state = 'w'
      listed[#listed + 1] = text
    else
      job.state = 'r'
      ranked[#ranked + 1], ranked[#ranked + 2] = rank(job, false), text
    end
    records[2 * i - 1], records[2 * i] = id, write(job)
  end
  call('HSET', JOBS, unpack(records))
  if #listed > 0 then call('RPUSH', WAITING, unpack(listed)) end
  if #ranked > 0 then call('ZADD', RANKED, unpack(ranked)) end
  if #delayed > 0 then call('ZADD', DELAYED, unpack(delayed)) end
  if soon or #listed + #ranked > 0 then ring() end
end
