-- record: the text of a job in the JOBS hash, format 1
-- include: keys
--
-- The sequence, then, each after a space: '1' and the state (w waiting in a list, r waiting in RANKED, d
-- delayed, f in flight, x failed), attempt, claim token ('' unless in flight), spent, deaths, limit ('' for
-- none; one of the job's own ends with '!'), priority, enqueued (ms), changed (ms after enqueued), lease
-- (ms, '' for the queue's or none), worker (the rest). Numbers stay text: they are compared and copied.
-- Jobs that came together differ in their sequence alone, so that the rest is made once for them all.
local function read(text)
  local sequence, state, attempt, token, spent, deaths, limit, priority, enqueued, changed, lease, worker =
    string.match(text, '^(%d+) 1([wrdfx]) (%d+) (%S*) (%d+) (%d+) (%d*!?) (%-?%d+) (%d+) (%-?%d+) (%d*) (.*)$')
  return sequence and {
    sequence = sequence, state = state, attempt = attempt, token = token, spent = spent, deaths = deaths,
    limit = limit, priority = priority, enqueued = enqueued, changed = changed, lease = lease, worker = worker,
  }
end

-- glance(text): of a job no more than where it is and who holds it
local function glance(text)
  local sequence, state, attempt, token =
    string.match(text, '^(%d+) 1([wrdfx]) (%d+) (%S*) %d+ %d+ %d*!? %-?%d+ %d+ %-?%d+ %d* ')
  return sequence and { sequence = sequence, state = state, attempt = attempt, token = token }
end

-- listed_as(text): the sequence in a record, where it is that of a job that waits in a list
local function listed_as(text)
  return string.match(text, '^(%d+) 1w ')
end

-- rest_of(job): its record behind the sequence
local function rest_of(job)
  return ' 1' .. job.state .. ' ' .. job.attempt .. ' ' .. job.token .. ' ' .. job.spent .. ' ' .. job.deaths
    .. ' ' .. job.limit .. ' ' .. job.priority .. ' ' .. job.enqueued .. ' ' .. job.changed .. ' ' .. job.lease
    .. ' ' .. job.worker
end

local function write(job)
  return job.sequence .. rest_of(job)
end

-- fresh(limit, priority, time, due): a new job, with a limit of its own unless that is ''. All fields are
-- named at once: a Lua table that grows is made anew.
local function fresh(limit, priority, time, due)
  return {
    state = 'w', attempt = '0', spent = '0', deaths = '0', limit = limit == '' and '' or limit .. '!',
    priority = priority, sequence = '', enqueued = time, changed = '0', token = '', lease = '', worker = '',
    due = due,
  }
end

local function plus(text, n)
  return string.format('%.0f', text + n)
end
