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

-- check_join(plain): the types of the keys that are written below, before anything is; plain are jobs of no
-- priority, due now
local function check_join(plain)
  check_bell()
  call('LLEN', WAITING)
  if not plain then
    call('ZCARD', RANKED)
    call('ZCARD', DELAYED)
  end
end

-- join(ids, jobs, time): in this order. A job whose `due` (ms) is later than now is delayed until then.
-- Neighbors may share a job's table.
local function join(ids, jobs, time)
  if #ids == 0 then return end
  local before, soon = call('HINCRBY', META, 'sequence', #ids) - #ids, false
  local records, listed, ranked, delayed, last, rest = {}, {}, {}, {}, nil, nil
  for i, id in ipairs(ids) do
    local job, sequence = jobs[id], plus(before, i)
    if job ~= last then
      last, job.state = job, later(job, time) and 'd' or job.priority == '0' and 'w' or 'r'
      job.changed = time == job.enqueued and '0' or plus(time, -job.enqueued)
      job.token, job.lease, job.worker = '', '', ''
      rest = rest_of(job)
    end
    job.sequence = sequence
    if job.state == 'w' then
      listed[#listed + 1] = place(id, sequence)
    elseif job.state == 'r' then
      ranked[#ranked + 1], ranked[#ranked + 2] = rank(job, false), place(id, sequence)
    else
      delayed[#delayed + 1], delayed[#delayed + 2] = plus(job.due, 0), place(id, sequence)
      soon = soon or job.due < time + SOON
    end
    records[2 * i - 1], records[2 * i] = id, sequence .. rest
  end
  call('HSET', JOBS, unpack(records))
  if #listed > 0 then call('RPUSH', WAITING, unpack(listed)) end
  if #ranked > 0 then call('ZADD', RANKED, unpack(ranked)) end
  if #delayed > 0 then call('ZADD', DELAYED, unpack(delayed)) end
  if soon or #listed + #ranked > 0 then ring() end
end
