-- cancelling: active jobs go at once, wherever they are
-- include: jobs waiting room note

-- check_cancelling(capacity) -> jobs active before any has left, where there is a capacity
local function check_cancelling(capacity)
  for _, key in ipairs({ PAYLOADS, ERRORS }) do call('HLEN', key) end
  for _, key in ipairs({ LEASES, RANKED, DELAYED }) do call('ZCARD', key) end
  for _, key in ipairs({ RETIRED, CANCELLED }) do call('SCARD', key) end
  return check_room(capacity)
end

-- cancel_all(ids, jobs, before, meta, time) -> error reply, before anything is changed
local function cancel_all(ids, jobs, before, meta, time)
  local placed, listed = { f = {}, r = {}, d = {} }, 0
  for _, id in ipairs(ids) do
    local members = placed[jobs[id].state]
    if members then members[#members + 1] = member(id, jobs[id]) else listed = listed + 1 end
  end
  local front, behind, ghosts = call('LLEN', FRONT), call('LLEN', WAITING), (meta.ghosts or 0) + listed
  if ghosts > front + behind then
    return redis.error_reply('CORRUPT there are waiting jobs whose ids are in no list')
  end
  for _, key in ipairs({ JOBS, PAYLOADS, ERRORS }) do call('HDEL', key, unpack(ids)) end
  for state, key in pairs({ f = LEASES, r = RANKED, d = DELAYED }) do
    if #placed[state] > 0 then call('ZREM', key, unpack(placed[state])) end
  end
  call('SADD', RETIRED, unpack(ids))
  call('SADD', CANCELLED, unpack(ids))
  note('cancelled', ids, jobs)
  if listed > 0 then leave_ghosts(front, behind, ghosts, math.ceil(#ids / 32)) end
  make_room(meta.capacity, before, #ids, time)
end
