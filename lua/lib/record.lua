-- record: the text of a job in the JOBS hash, format 1
-- include: keys
--
-- '1', the state (w waiting in a list, r waiting in RANKED, d delayed, f in flight, x failed), then,
-- each after a space: attempt, spent, deaths, limit ('' for none; one of the job's own ends with '!'),
-- priority, sequence, enqueued (ms), changed (ms after enqueued), claim token ('' unless in flight),
-- lease (ms, '' for the queue's or none), worker (the rest). Numbers stay text: they are compared and copied.
local function read(text)
  local state, attempt, spent, deaths, limit, priority, sequence, enqueued, changed, token, lease, worker =
    string.match(text, '^1([wrdfx]) (%d+) (%d+) (%d+) (%d*!?) (%-?%d+) (%d+) (%d+) (%-?%d+) (%S*) (%d*) (.*)$')
  return state and {
    state = state, attempt = attempt, spent = spent, deaths = deaths, limit = limit,
    priority = priority, sequence = sequence, enqueued = enqueued, changed = changed,
    token = token, lease = lease, worker = worker,
  }
end

-- glance(text): of a job no more than where it is and who holds it
local function glance(text)
  local state, attempt, sequence, token =
    string.match(text, '^1([wrdfx]) (%d+) %d+ %d+ %d*!? %-?%d+ (%d+) %d+ %-?%d+ (%S*) ')
  return state and { state = state, attempt = attempt, sequence = sequence, token = token }
end

-- sketch(text): of a waiting job what it takes to reserve it; `rest` are priority, sequence and enqueued.
-- These are 8 fields: a Lua table of more takes twice the memory, and time.
local function sketch(text)
  local state, attempt, spent, deaths, limit, rest, sequence, enqueued =
    string.match(text, '^1([wrdfx]) (%d+) (%d+) (%d+) (%d*!?) (%-?%d+ (%d+) (%d+)) ')
  return state and {
    state = state, attempt = attempt, spent = spent, deaths = deaths, limit = limit, rest = rest,
    sequence = sequence, enqueued = enqueued,
  }
end

-- listed_as(text): the sequence in a record, where it is that of a job that waits in a list
local function listed_as(text)
  return string.match(text, '^1w %d+ %d+ %d+ %d*!? %-?%d+ (%d+)')
end

local function write(job)
  return '1' .. job.state .. ' ' .. job.attempt .. ' ' .. job.spent .. ' ' .. job.deaths .. ' '
    .. job.limit .. ' ' .. job.priority .. ' ' .. job.sequence .. ' ' .. job.enqueued .. ' '
    .. job.changed .. ' ' .. job.token .. ' ' .. job.lease .. ' ' .. job.worker
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
