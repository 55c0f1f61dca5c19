-- configure(capacity) -> {ok}: '' is unbounded; a smaller capacity only refuses new jobs
-- include: request
local failure, answer = begin('format')
if failure then return failure end
if answer then return split(answer) end

call('HSET', META, 'capacity', ARGV[FIRST])
return finish({ 'ok' }, now())
