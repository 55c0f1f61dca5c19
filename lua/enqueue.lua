-- enqueue(woken, then per item: id, limit, priority, due, payload) -> per item: ok | duplicate same|different
-- | full ... | fate
-- include: answer join fate vacancy note
local MAX_PAYLOAD, WIDTH = 1048576, 5

local failure, answer, meta = begin('sequence', 'capacity')
if failure then return failure end
if answer then return split(answer) end

local ids, payloads = {}, {}
for i = 1, COUNT do
  local at = FIRST + WIDTH * (i - 1)
  ids[i], payloads[i] = ARGV[at + 1], ARGV[at + WIDTH]
  if #payloads[i] > MAX_PAYLOAD then
    return redis.error_reply('TOOLARGE the payload of job ' .. ids[i] .. ' has ' .. #payloads[i] .. ' bytes')
  end
end
local known, retired = call('HMGET', JOBS, unpack(ids)), call('SMISMEMBER', RETIRED, unpack(ids))
local time = now()
local room, own = vacancy(meta.capacity, ARGV[FIRST] == '1', COUNT, time)

-- Decide every item as if the ones before it had been done.
local reply, accepted, jobs, bodies, payload_of, delayed = {}, {}, {}, {}, {}, 0
local plain, job, limit, priority, due = true, nil, nil, nil, nil -- of one as of the next, where they are alike
for i, id in ipairs(ids) do
  if known[i] or jobs[id] then
    local size = jobs[id] and #payload_of[id] or call('HSTRLEN', PAYLOADS, id)
    local same = size == #payloads[i] and (payload_of[id] or call('HGET', PAYLOADS, id)) == payloads[i]
    reply[i] = same and 'duplicate same' or 'duplicate different'
  elseif retired[i] == 1 then
    reply[i] = fate(id)
  elseif room and room <= #accepted then
    reply[i] = full(meta.capacity, #accepted, delayed)
  else
    reply[i] = 'ok'
    local at = FIRST + WIDTH * (i - 1)
    accepted[#accepted + 1], payload_of[id] = id, payloads[i]
    bodies[#bodies + 1], bodies[#bodies + 2] = id, payloads[i]
    if ARGV[at + 2] ~= limit or ARGV[at + 3] ~= priority or ARGV[at + 4] ~= due then
      limit, priority, due = ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
      job = fresh(limit, priority, time, due_of(due, time))
      plain = plain and priority == '0' and due == ''
    end
    jobs[id] = job
    if later(job, time) then delayed = delayed + 1 end
  end
end
if #accepted == 0 then
  if own then take_room(room, own, time) end -- what it cannot use goes to the next
  return refuse(reply, 'grow')
end

check_join(plain)
call('HLEN', PAYLOADS)
join(accepted, jobs, time)
call('HSET', PAYLOADS, unpack(bodies))
note('enqueued', accepted, jobs)
take_room(room and room - #accepted, own, time)
return finish(reply, time)
