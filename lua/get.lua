-- get(id, payload) -> five texts: see view; none where no job has this id, or its record is gone
-- include: looking holder view
local failure = looking()
if failure then return failure end

local id = ARGV[1]
local jobs, corrupt = load({ id })
if corrupt then return corrupt end
local job, ends = jobs[id], ''
if not job and call('HEXISTS', FAILURES, id) == 0 then return {} end
local key = job and ({ f = LEASES, d = DELAYED })[job.state]
if key then
  ends = call('ZSCORE', key, member(id, job))
  if not ends then return redis.error_reply('CORRUPT job ' .. id .. ' has no time to end') end
end
local error, texts = view({ id }, { ends }, ARGV[2])
return error or texts
