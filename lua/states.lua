-- states(id ...) -> {active jobs, per id: waiting | delayed | in_flight | fate}
-- include: looking holder
local failure = looking()
if failure then return failure end
local jobs, corrupt = load(ARGV)
if corrupt then return corrupt end
local reply = { call('HLEN', JOBS) }
for i, id in ipairs(ARGV) do
  reply[i + 1] = state_of(id, jobs[id])
end
return reply
