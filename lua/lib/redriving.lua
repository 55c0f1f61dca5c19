-- redriving: failed jobs wait again: with their attempt numbers, payload and history, and a fresh budget
-- include: holder failed join vacancy note

-- redriven(ids, limits, capacity, time) -> error reply, reply per id, how many were
local function redriven(ids, limits, capacity, time)
  local records = call('HMGET', FAILURES, unpack(ids))
  local active, corrupt = load(ids)
  if corrupt then return corrupt end
  check_failed()
  check_join()
  local room = vacancy(capacity, false, #ids, time)

  local reply, back, jobs, members, marks = {}, {}, {}, {}, {}
  for i, id in ipairs(ids) do
    local reason, text = string.match(records[i] or '', '^(%a+) (.*)$')
    local job = reason and read(text)
    if jobs[id] then
      reply[i] = 'waiting' -- an earlier item of the batch has done it
    elseif not records[i] then
      reply[i] = state_of(id, active[id])
    elseif not job then
      return redis.error_reply('CORRUPT the record of failed job ' .. id .. ' cannot be read: ' .. records[i])
    elseif room and room <= #back then
      reply[i] = full(capacity, #back, 0)
    else
      reply[i] = 'ok'
      back[#back + 1], jobs[id] = id, job
      members[#back], marks[#back] = member(id, job), '!' .. id
      job.limit = limits[i] ~= '' and limits[i] .. '!' or string.match(job.limit, '^%d+!$') or ''
    end
  end
  if #back == 0 then return nil, reply, 0 end

  for _, id in ipairs(back) do jobs[id].spent, jobs[id].deaths = '0', '0' end
  join(back, jobs, time)
  note('redriven', back, jobs)
  call('ZREM', FAILED, unpack(members))
  call('HDEL', FAILURES, unpack(back))
  call('SREM', RETIRED, unpack(back))
  call('SREM', CANCELLED, unpack(marks))
  take_room(room and room - #back, false, time)
  return nil, reply, #back
end
