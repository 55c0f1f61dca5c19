-- position(id) -> {at least, at most}: how many jobs are reserved before it; none where it does not wait
-- include: looking jobs seek
local failure, meta = looking('ghosts')
if failure then return failure end

local id = ARGV[1]
local jobs, corrupt = load({ id })
if corrupt then return corrupt end
local job = jobs[id]
if not job or job.state ~= 'w' and job.state ~= 'r' then return {} end
local ahead, listed
if job.state == 'r' then
  local score = call('ZSCORE', RANKED, member(id, job))
  if not score then return redis.error_reply('CORRUPT the waiting job ' .. id .. ' has no rank') end
  ahead = call('ZRANK', RANKED, member(id, job))
  listed = tonumber(score) < 0 and 0 or call('LLEN', FRONT) + call('LLEN', WAITING)
else
  local sequence = tonumber(job.sequence)
  ahead = call('ZCOUNT', RANKED, '-inf', '(0')
  listed = listed_until(FRONT, sequence) + listed_until(WAITING, sequence) - 1
end
-- Which members of the lists are ghosts is not known without looking at each of them.
local ghosts = math.min(tonumber(meta[1] or nil) or 0, listed)
return { ahead + listed - ghosts, ahead + listed }
