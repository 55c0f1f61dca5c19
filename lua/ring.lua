-- ring() -> '': for a waiter that cannot know whether it has taken a ring along
-- include: looking pass_on
local failure, meta = looking('paused')
if failure then return failure end
pass_on(meta[1])
return ''
