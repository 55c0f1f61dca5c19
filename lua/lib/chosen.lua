-- chosen: what a reserve hands out: the first waiting jobs, as many as fit into one reply
-- include: head held
local MOST_BYTES = 4194304

-- chosen(wanted, limit) -> error reply, found (see `finding`), payloads, whether they were too large together
local function chosen(wanted, limit)
  local corrupt, found, payloads = look(wanted, limit)
  if not corrupt then payloads, corrupt = bodies(found.ids, MOST_BYTES) end
  local large = not corrupt and #payloads < #found.ids
  if large then corrupt, found = look(#payloads, limit) end
  return corrupt, found, payloads, large
end
