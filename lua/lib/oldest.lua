-- oldest: since when the job that has waited longest does
-- include: jobs
local MOST_STEP, MOST_LOOKED, MOST_PRIORITIES = 250, 1000, 250

-- oldest() -> ms, nil where no job waits, and an error reply. It is the first of its priority, or the first
-- of those that were released to its head; the lists begin with ghosts, perhaps. Where these are more than
-- a bound it looks here and there, and what it finds is not the oldest but near it. Of very many
-- priorities it looks at the lowest, which wait longest.
local function oldest()
  local since, corrupt
  local function look(texts, listed)
    local ids, jobs = ids_of(texts), nil
    jobs, corrupt = load(ids)
    for i, id in ipairs(corrupt and {} or ids) do
      local job = jobs[id]
      if job and (not listed or stands(texts[i], job)) then
        since = math.min(since or math.huge, job.enqueued + job.changed)
        return true
      end
    end
    return corrupt
  end

  local below = '+inf'
  for _ = 1, MOST_PRIORITIES do
    local last = call('ZREVRANGEBYSCORE', RANKED, below, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not last[2] or corrupt then break end
    local start = string.format('%.0f', math.floor(last[2] / SPAN) * SPAN)
    look(call('ZRANGEBYSCORE', RANKED, start, '+inf', 'LIMIT', 0, 1), false)
    below = '(' .. start
  end
  local found = corrupt
  for _, list in ipairs({ FRONT, WAITING }) do
    local at, step, length = 0, 1, call('LLEN', list)
    while not found and at < length do
      found = look(call('LRANGE', list, at, at + step - 1), true)
      at = at < MOST_LOOKED and at + step or 2 * at
      step = math.min(2 * step, MOST_STEP)
    end
  end
  return since, corrupt
end
