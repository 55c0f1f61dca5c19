-- note: the last transitions of jobs, where the queue keeps any
-- include: request

-- note(event, ids, {id: job}): the oldest go, a bounded number at a time
local function note(event, ids, jobs)
  if not noted then return end
  for _, id in ipairs(ids) do
    call('XADD', HISTORY, 'MAXLEN', '~', noted, 'LIMIT', 1000, '*',
      'event', event, 'id', id, 'attempt', jobs[id].attempt, 'worker', jobs[id].worker or '')
  end
end
