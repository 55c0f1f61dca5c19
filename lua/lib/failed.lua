-- failed: the jobs that failed for good: FAILED by the time of it, their records in FAILURES
-- include: jobs
local MOST_FORGOTTEN = 64

local function check_failed()
  call('ZCARD', FAILED)
  call('HLEN', FAILURES)
  call('SCARD', RETIRED)
  call('SCARD', CANCELLED)
  for _, key in ipairs({ PAYLOADS, ERRORS, HEADERS }) do call('HLEN', key) end
end

-- failure_of(id, job, reason): how it is told to whoever made it fail
local function failure_of(id, job, reason)
  return '!' .. id .. ' ' .. job.attempt .. ' ' .. reason
end

-- forget(number): drops the records of the oldest of them; their ids stay retired
local function forget(number)
  if number <= 0 then return end
  local members = call('ZRANGE', FAILED, 0, number - 1)
  local ids = ids_of(members)
  call('ZREM', FAILED, unpack(members))
  for _, key in ipairs({ FAILURES, PAYLOADS, ERRORS, HEADERS }) do call('HDEL', key, unpack(ids)) end
end

-- trim(meta, time, more): drops what is beyond the bounds that were set: a bounded number at a time, and
-- as many `more` as have come
local function trim(meta, time, more)
  local over = meta.keep_count and call('ZCARD', FAILED) - meta.keep_count or 0
  local old = meta.keep_age and call('ZCOUNT', FAILED, '-inf', plus(time, -meta.keep_age)) or 0
  forget(math.min(math.max(over, old), MOST_FORGOTTEN + more))
end

-- to_failed(ids, jobs, reasons, time, meta): active jobs, already out of every list and sorted set,
-- become failed ones
local function to_failed(ids, jobs, reasons, time, meta)
  if #ids == 0 then return end
  local sequence = call('HINCRBY', META, 'sequence', #ids) - #ids
  local records, members, marks = {}, {}, {}
  for i, id in ipairs(ids) do
    local job = jobs[id]
    job.state, job.sequence, job.token, job.lease = 'x', plus(sequence, i), '', ''
    job.changed = plus(time, -job.enqueued)
    records[2 * i - 1], records[2 * i] = id, reasons[id] .. ' ' .. write(job)
    members[2 * i - 1], members[2 * i] = time, member(id, job)
    marks[i] = '!' .. id
  end
  call('HDEL', JOBS, unpack(ids))
  call('HSET', FAILURES, unpack(records))
  call('ZADD', FAILED, unpack(members))
  call('SADD', RETIRED, unpack(ids))
  call('SADD', CANCELLED, unpack(marks))
  trim(meta, time, #ids)
end
