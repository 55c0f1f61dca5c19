-- enqueue(woken, then per item: id, limit, payload) -> per item: ok | duplicate same|different | full ... | fate
-- include: answer record fate bell vacancy
local MAX_PAYLOAD = 1048576

local failure, answer, meta = begin('sequence', 'capacity')
if failure then return failure end
if answer then return split(answer) end

local ids, payloads = {}, {}
for i = 1, COUNT do
  ids[i], payloads[i] = ARGV[FIRST + 3 * i - 2], ARGV[FIRST + 3 * i]
  if #payloads[i] > MAX_PAYLOAD then
    return redis.error_reply('TOOLARGE the payload of job ' .. ids[i] .. ' has ' .. #payloads[i] .. ' bytes')
  end
end
local known, retired = call('HMGET', JOBS, unpack(ids)), call('SMISMEMBER', RETIRED, unpack(ids))
call('HLEN', PAYLOADS)
call('LLEN', WAITING)
call('LLEN', BELL)
local time = now()
local room, own = vacancy(meta.capacity, ARGV[FIRST] == '1', COUNT, time)

-- Decide every item as if the ones before it had been done.
local reply, accepted, payload_of, limits = {}, {}, {}, {}
for i, id in ipairs(ids) do
  if known[i] or payload_of[id] then
    local size = payload_of[id] and #payload_of[id] or call('HSTRLEN', PAYLOADS, id)
    local same = size == #payloads[i] and (payload_of[id] or call('HGET', PAYLOADS, id)) == payloads[i]
    reply[i] = same and 'duplicate same' or 'duplicate different'
  elseif retired[i] == 1 then
    reply[i] = fate(id)
  elseif room and room <= #accepted then
    reply[i] = full(meta.capacity, #accepted)
  else
    reply[i] = 'ok'
    accepted[#accepted + 1], limits[#accepted + 1] = id, ARGV[FIRST + 3 * i - 1]
    payload_of[id] = payloads[i]
  end
end
if #accepted == 0 then
  if own then take_room(room, own, time) end -- what it cannot use goes to the next
  return refuse(reply, 'grow')
end

local sequence = call('HINCRBY', META, 'sequence', #accepted) - #accepted
local records, bodies = {}, {}
for i, id in ipairs(accepted) do
  records[2 * i - 1], bodies[2 * i - 1] = id, id
  records[2 * i] = fresh(limits[i], plus(sequence, i), time)
  bodies[2 * i] = payload_of[id]
end
call('HSET', JOBS, unpack(records))
call('HSET', PAYLOADS, unpack(bodies))
call('RPUSH', WAITING, unpack(accepted))
ring()
take_room(room and room - #accepted, own, time)
return finish(reply, time)
