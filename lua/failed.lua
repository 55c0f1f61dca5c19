-- failed(start, count) -> of each failed job, the last one first, five texts: see view
-- include: looking jobs view
local failure = looking()
if failure then return failure end
local start = tonumber(ARGV[1])
local error, reply = view(ids_of(call('ZREVRANGE', FAILED, start, start + ARGV[2] - 1)), {}, '1')
return error or reply
