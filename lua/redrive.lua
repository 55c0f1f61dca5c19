-- redrive(id, limit ...) -> per item: ok | full ... | waiting | delayed | in_flight | why it is not failed
-- include: answer redriving
local failure, answer, meta = begin('sequence', 'capacity')
if failure then return failure end
if answer then return split(answer) end

local ids, limits, time = {}, {}, now()
for i = 1, COUNT do ids[i], limits[i] = ARGV[FIRST + 2 * i - 2], ARGV[FIRST + 2 * i - 1] end
local corrupt, reply, number = redriven(ids, limits, meta.capacity, time)
if corrupt then return corrupt end
if number == 0 then return refuse(reply, 'grow') end
return finish(reply, time)
