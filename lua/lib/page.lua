-- page: the jobs of a state, some at a time, in an order that goes on wherever it was left
-- include: jobs seek
local MOST_LOOKED, MOST_STEP = 1000, 250

-- page(state, after, count) -> error reply, places: {id, job, score, mark}, how far it came: '' for to the end.
-- `after` is the mark of the last one before, 'score sequence', '' at the beginning. Waiting jobs come as
-- reserve takes them, failed ones the last first, without a job; others by when their delay or lease ends.
local function page(state, after, count)
  local score, sequence = string.match(after, '^(%S+) (%d+)$')
  local found, last, looked, corrupt = {}, after, 0, nil
  sequence = tonumber(sequence)

  local function full()
    return corrupt or #found == count or looked >= MOST_LOOKED
  end
  local function show(texts, scores)
    local ids, jobs = ids_of(texts), {}
    if state ~= 'failed' then jobs, corrupt = load(ids) end
    for i, text in ipairs(texts) do
      if full() then return end
      local mine, job = scores and scores[i] or '0', jobs[ids[i]]
      last, looked = mine .. ' ' .. string.format('%.0f', string.sub(text, 1, 13)), looked + 1
      if scores or stands(text, job) then
        found[#found + 1] = { id = ids[i], job = job, score = mine, mark = last }
      end
    end
  end
  local function of_set(key, from, to, command)
    if full() or from >= to then return end
    local texts, scores = {}, call(command, key, from, math.min(to, from + count - #found) - 1, 'WITHSCORES')
    for i = 1, #scores / 2 do texts[i], scores[i] = scores[2 * i - 1], scores[2 * i] end
    show(texts, scores)
  end
  local function of_list(list)
    local from, some = score == '0' and listed_until(list, sequence) or 0, nil
    while not full() and (not some or #some > 0) do
      some = call('LRANGE', list, from, from + math.max(count - #found, math.min(looked, MOST_STEP)) - 1)
      from = from + #some
      show(some)
    end
  end

  local key = ({ waiting = RANKED, delayed = DELAYED, in_flight = LEASES, failed = FAILED })[state]
  local all = call('ZCARD', key)
  if state == 'failed' then
    of_set(key, all - (score and sorted_until(key, score, sequence - 1) or all), all, 'ZREVRANGE')
  else
    local from = score and sorted_until(key, score, sequence) or 0
    local before = state == 'waiting' and call('ZCOUNT', key, '-inf', '(0') or all
    of_set(key, from, before, 'ZRANGE')
    if state == 'waiting' and from <= before then
      of_list(FRONT)
      of_list(WAITING)
    end
    of_set(key, math.max(from, before), all, 'ZRANGE')
  end
  return corrupt, found, full() and last or ''
end
