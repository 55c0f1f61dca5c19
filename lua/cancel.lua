-- cancel(id ...) -> per item: ok | finished | cancelled | failed | purged | unknown
-- include: answer fate cancelling
local failure, answer, meta = begin('ghosts', 'capacity')
if failure then return failure end
if answer then return split(answer) end

local ids = {}
for i = 1, COUNT do ids[i] = ARGV[FIRST + i - 1] end
local jobs, corrupt = load(ids, not noted and glance)
if corrupt then return corrupt end
local before = check_cancelling(meta.capacity)

local reply, gone, taken = {}, {}, {}
for i, id in ipairs(ids) do
  if taken[id] then
    reply[i] = 'cancelled'
  elseif not jobs[id] then
    reply[i] = fate(id)
  else
    reply[i], taken[id] = 'ok', true
    gone[#gone + 1] = id
  end
end
if #gone == 0 then return refuse(reply, 'free') end
local time = now()
return cancel_all(gone, jobs, before, meta, time) or finish(reply, time)
