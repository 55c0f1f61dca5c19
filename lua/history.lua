-- history(before, count) -> {how many are kept, then per transition, the last one first: its number, event,
-- id, attempt, worker}
-- include: looking
local failure, meta = looking('history')
if failure then return failure end
local reply = { meta[1] or '' }
local last = ARGV[1] == '' and '+' or '(' .. ARGV[1]
for _, entry in ipairs(call('XREVRANGE', HISTORY, last, '-', 'COUNT', ARGV[2])) do
  reply[#reply + 1] = entry[1]
  for i = 2, 8, 2 do reply[#reply + 1] = entry[2][i] end
end
return reply
