-- configure(field, value ...) -> {ok}: '' is none; a smaller capacity only refuses new jobs
-- include: answer room
local failure, answer = begin('capacity')
if failure then return failure end
if answer then return split(answer) end

check_room(0)
local time = now()
call('HSET', META, unpack(ARGV, FIRST))
for i = FIRST, #ARGV, 2 do
  -- One of those who wait for room is woken, and wakes the next.
  if ARGV[i] == 'capacity' then make_room(tonumber(ARGV[i + 1]) or 2 ^ 53, math.huge, 1, time) end
  if ARGV[i] == 'history' and ARGV[i + 1] == '' then call('UNLINK', HISTORY) end
end
return finish({ 'ok' }, time)
