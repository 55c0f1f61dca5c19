-- jobs(state, after, count, payloads) -> {how far it came, '' for to the end; of each job five texts: see view}
-- include: looking page view
local failure = looking()
if failure then return failure end

local corrupt, found, last = page(ARGV[1], ARGV[2], tonumber(ARGV[3]))
if corrupt then return corrupt end
local ids, ends = {}, {}
for i, place in ipairs(found) do
  ids[i], ends[i] = place.id, ARGV[1] == 'waiting' and '' or place.score
end
local reply
corrupt, reply = view(ids, ends, ARGV[4])
if corrupt then return corrupt end
if #reply < 5 * #ids then last = found[#reply / 5].mark end
table.insert(reply, 1, last)
return reply
