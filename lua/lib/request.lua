-- request: what every script that changes something begins with: has this call run before?
-- include: keys
--
-- ARGV opens with a header: the request token as lane and number, what the call comes after, a
-- fingerprint of its arguments, and the number of its items. The receipt of a lane holds its last
-- call that changed something: 'number time fingerprint answer'. A call that finds its own number
-- there has run before: it changes nothing and answers as it did. `AFTER` is '' for a lone call, '-'
-- for the first of several sent together, else the lane and number of the one before it, which must
-- have run; those leave a receipt even when refused, or a resend could answer out of order.
local LANE, NUMBER, AFTER, FINGERPRINT, COUNT = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local FIRST = 6 -- of the items

local function receipt_of(lane)
  local receipt = call('HGET', RECEIPTS, lane)
  if receipt then
    return tonumber(string.match(receipt, '^%d+')), receipt
  end
end

local neighbors -- some other lanes, where this one is new
local noted -- how many transitions are kept, if any: see note

-- begin(field, ...) -> error reply, answer of the first run, {field: number}: those of META asked for
local function begin(...)
  local stored, meta = call('HMGET', META, 'format', 'history', ...), {}
  if stored[1] ~= '1' then
    return redis.error_reply(stored[1] and 'NEWFORMAT ' .. stored[1] or 'NOQUEUE')
  end
  noted = tonumber(stored[2] or nil)
  if noted then call('XLEN', HISTORY) end
  for i = 3, #stored do
    local field = select(i - 2, ...)
    local counter = field == 'sequence' or field == 'ghosts'
    local text = stored[i] or field == 'capacity' and '?' or '0'
    if not string.find(text, counter and '^%d+$' or '^%d*$') then
      return redis.error_reply('CORRUPT the ' .. field .. ' of the queue is no number')
    end
    meta[field] = tonumber(stored[i] or nil)
  end
  local number, receipt = receipt_of(LANE)
  if number == tonumber(NUMBER) then
    local fingerprint, answer = string.match(receipt, '^%d+ %d+ (%S+) (.*)$')
    if fingerprint ~= FINGERPRINT then
      return redis.error_reply('REUSED this request token belongs to a different call')
    end
    return nil, answer, meta
  elseif number and number > tonumber(NUMBER) then
    return redis.error_reply('SUPERSEDED a later request has used this lane')
  elseif AFTER ~= '' and AFTER ~= '-' then
    local lane, before = string.match(AFTER, '^(%S+) (%d+)$')
    if receipt_of(lane) ~= tonumber(before) then
      return redis.error_reply('OUTOFORDER the request before this one has not run')
    end
  end
  if not number then
    neighbors = call('HRANDFIELD', RECEIPTS, 3, 'WITHVALUES')
  end
  return nil, nil, meta
end
