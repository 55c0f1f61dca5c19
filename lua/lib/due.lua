-- due: leases and delays that have ended, and when the next one will
-- include: jobs

-- overdue(time, most) -> error reply, ids, {id: job}: what has ended, by its time, then its sequence
local function overdue(time, most)
  local found, ids, state_of_id = {}, {}, {}
  for key, state in pairs({ [LEASES] = 'f', [DELAYED] = 'd' }) do
    local some = call('ZRANGEBYSCORE', key, '-inf', time, 'WITHSCORES', 'LIMIT', 0, most)
    for i = 1, #some, 2 do
      found[#found + 1] = {
        id = string.sub(some[i], 14), sequence = tonumber(string.sub(some[i], 1, 13)),
        time = tonumber(some[i + 1]), state = state,
      }
    end
  end
  table.sort(found, function(a, b) return a.time < b.time or a.time == b.time and a.sequence < b.sequence end)
  for i = 1, math.min(#found, most) do
    ids[i] = found[i].id
    state_of_id[ids[i]] = found[i].state
  end
  local jobs, corrupt = load(ids)
  if corrupt then return corrupt end
  for _, id in ipairs(ids) do
    if not jobs[id] or jobs[id].state ~= state_of_id[id] then
      return redis.error_reply('CORRUPT job ' .. id .. ' has a time to end and is neither in flight nor delayed')
    end
  end
  return nil, ids, jobs
end

-- due(time) -> ms until the next lease or delay ends, '' where none will
local function due(time)
  local soon = math.huge
  for _, key in ipairs({ LEASES, DELAYED }) do
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if first[2] and first[2] ~= 'inf' then soon = math.min(soon, first[2] - time) end
  end
  return soon == math.huge and '' or string.format('%.0f', math.max(0, soon))
end
