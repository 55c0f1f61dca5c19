-- redrive_all(limit, until) -> {jobs redriven now, more, until}: the oldest failed jobs, while there is
-- room; of those that had failed when the first of several calls, whose `until` is '', came
-- include: answer redriving
local MOST = 250

local failure, answer, meta = begin('capacity', 'sequence')
if failure then return failure end
if answer then return split(answer) end

local last, ids, limits, time = tonumber(ARGV[FIRST + 1]) or meta.sequence or 0, {}, {}, now()
for _, text in ipairs(call('ZRANGE', FAILED, 0, 2 * MOST - 1)) do
  -- One that failed since stands among the others only where the clock was set back.
  if #ids < MOST and tonumber(string.sub(text, 1, 13)) <= last then
    ids[#ids + 1], limits[#limits + 1] = string.sub(text, 14), ARGV[FIRST]
  end
end
local corrupt, number = nil, 0
if #ids > 0 then
  local _
  corrupt, _, number = redriven(ids, limits, meta.capacity, time)
end
if corrupt then return corrupt end
local more = #ids == MOST and number == MOST and '1' or '0'
local reply = { plus(number, 0), more, plus(last, 0) }
if number == 0 then return refuse(reply, 'grow') end
return finish(reply, time)
