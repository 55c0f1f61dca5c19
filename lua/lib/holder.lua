-- holder: who may settle a job, and why not
-- include: jobs fate

local STATES = { w = 'waiting', r = 'waiting', d = 'delayed', f = 'in_flight' }

-- state_of(id, job): the word for where it is, or for why it is not active
local function state_of(id, job)
  return job and STATES[job.state] or fate(id)
end

-- refusal(id, job, attempt, token): nil for the holder of the job's current attempt; a token, when
-- given, must match, too. A lease that has ended, unless it was reaped, takes nothing away.
local function refusal(id, job, attempt, token)
  if not job then
    return fate(id)
  elseif job.state ~= 'f' then
    return STATES[job.state]
  elseif job.attempt ~= attempt or (token ~= '' and job.token ~= token) then
    return 'stale ' .. job.attempt
  end
end

-- claims(width, becomes, reader) -> error reply, reply, ids held, {id: job}, {id: item}: checks all items,
-- of `width` arguments that begin with id, attempt and token. What a job that is held `becomes(job, at)` is the
-- reason to refuse it to a later item of the same batch.
local function claims(width, becomes, reader)
  local ids, reply, held, items, became = {}, {}, {}, {}, {}
  for i = 1, COUNT do ids[i] = ARGV[FIRST + width * (i - 1)] end
  local jobs, corrupt = load(ids, reader)
  if corrupt then return corrupt end
  for i, id in ipairs(ids) do
    local job, at = jobs[id], FIRST + width * (i - 1)
    local why = became[id] or refusal(id, job, ARGV[at + 1], ARGV[at + 2])
    reply[i] = why or 'ok'
    if not why then
      held[#held + 1], items[id] = id, i
      became[id] = becomes(job, at)
    end
  end
  return nil, reply, held, jobs, items
end

-- let_go(ids, jobs): ends their leases; a freeing write, which a full server takes first
local function let_go(ids, jobs)
  local leases = {}
  for i, id in ipairs(ids) do leases[i] = member(id, jobs[id]) end
  call('ZREM', LEASES, unpack(leases))
end
