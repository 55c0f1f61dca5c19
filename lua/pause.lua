-- pause(1, or '' to resume) -> {1 if that is new, else 0}
-- include: answer bell
local failure, answer, meta = begin('paused')
if failure then return failure end
if answer then return split(answer) end

check_bell()
local paused = ARGV[FIRST]
if (meta.paused or '') == (tonumber(paused) or '') then return refuse({ '0' }, 'free') end
call('HDEL', META, 'paused') -- a full server takes what begins by freeing
if paused == '' then ring() else call('HSET', META, 'paused', paused) end
return finish({ '1' }, now())
