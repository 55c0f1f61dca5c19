-- attempts: what follows when one has ended without success
-- include: jobs failed bell

-- used_up(job, limit): whether this limit, or else the one in its record, leaves it no attempt
local function used_up(job, limit)
  limit = limit or tonumber((string.match(job.limit, '^%d+')))
  return limit and tonumber(job.spent) >= limit
end

-- stamp(job, limit): takes down the limit that is in force; one of its own stays as it is
local function stamp(job, limit)
  if not string.find(job.limit, '!') then job.limit = limit and plus(limit, 0) or '' end
end

-- to_waiting(ids, jobs, time): active jobs, out of every list and sorted set, join the waiting tail
local function to_waiting(ids, jobs, time)
  if #ids == 0 then return end
  local sequence, records = call('HINCRBY', META, 'sequence', #ids) - #ids, {}
  for i, id in ipairs(ids) do
    local job = jobs[id]
    job.state, job.sequence, job.changed = 'w', plus(sequence, i), plus(time, -job.enqueued)
    job.token, job.lease, job.worker = '', '', ''
    records[2 * i - 1], records[2 * i] = id, write(job)
  end
  call('HSET', JOBS, unpack(records))
  call('RPUSH', WAITING, unpack(ids))
  ring()
end

-- check_attempts(): the types of the keys that are written below, before anything is
local function check_attempts()
  call('LLEN', WAITING)
  call('LLEN', BELL)
  check_failed()
end
