-- purge_failed(older than (ms)) -> {number of records dropped now, more}: the oldest failed jobs first
-- include: answer failed
local MOST = 250

local failure, answer = begin()
if failure then return failure end
if answer then return split(answer) end

check_failed()
local time = now()
local number = call('ZCOUNT', FAILED, '-inf', plus(time, -ARGV[FIRST]))
local now_gone = math.min(number, MOST)
local reply = { plus(now_gone, 0), number > MOST and '1' or '0' }
if number == 0 then return refuse(reply, 'free') end
forget(now_gone)
return finish(reply, time)
