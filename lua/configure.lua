-- configure(capacity) -> {ok}: '' is unbounded; a smaller capacity only refuses new jobs
-- include: answer
local failure, answer = begin()
if failure then return failure end
if answer then return split(answer) end

local time = now()
call('HSET', META, 'capacity', ARGV[FIRST])
return finish({ 'ok' }, time)
