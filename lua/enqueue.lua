-- enqueue(id, payload ...) -> per item: ok | duplicate same|different | finished | cancelled | full ...
-- include: answer record fate
local MAX_PAYLOAD = 1048576

local failure, answer, capacity = begin('capacity', 'sequence')
if failure then return failure end
if answer then return split(answer) end

local ids, payloads = {}, {}
for i = 1, COUNT do
  ids[i], payloads[i] = ARGV[FIRST + 2 * i - 2], ARGV[FIRST + 2 * i - 1]
  if #payloads[i] > MAX_PAYLOAD then
    return redis.error_reply('TOOLARGE the payload of job ' .. ids[i] .. ' has ' .. #payloads[i] .. ' bytes')
  end
end
local known, retired = call('HMGET', JOBS, unpack(ids)), call('SMISMEMBER', RETIRED, unpack(ids))
call('HLEN', PAYLOADS)
call('LLEN', WAITING)
local room = capacity and capacity - call('HLEN', JOBS)

-- Decide every item as if the ones before it had been done.
local reply, accepted, payload_of = {}, {}, {}
for i, id in ipairs(ids) do
  if known[i] or payload_of[id] then
    local size = payload_of[id] and #payload_of[id] or call('HSTRLEN', PAYLOADS, id)
    local same = size == #payloads[i] and (payload_of[id] or call('HGET', PAYLOADS, id)) == payloads[i]
    reply[i] = same and 'duplicate same' or 'duplicate different'
  elseif retired[i] == 1 then
    reply[i] = fate(id)
  elseif room and room <= #accepted then
    local in_flight, delayed = call('ZCARD', LEASES), call('ZCARD', DELAYED)
    local waiting = capacity - room + #accepted - in_flight - delayed
    reply[i] = string.format('full %.0f %.0f %.0f %.0f', waiting, delayed, in_flight, capacity)
  else
    reply[i] = 'ok'
    accepted[#accepted + 1] = id
    payload_of[id] = payloads[i]
  end
end
if #accepted == 0 then return refuse(reply, 'grow') end

local time = now()
local sequence = call('HINCRBY', META, 'sequence', #accepted) - #accepted
local records, bodies = {}, {}
for i, id in ipairs(accepted) do
  records[2 * i - 1], bodies[2 * i - 1] = id, id
  records[2 * i] = fresh(plus(sequence, i), time)
  bodies[2 * i] = payload_of[id]
end
call('HSET', JOBS, unpack(records))
call('HSET', PAYLOADS, unpack(bodies))
call('RPUSH', WAITING, unpack(accepted))
return finish(reply, time)
