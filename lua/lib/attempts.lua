-- attempts: what follows when one has ended without success
-- include: join failed

-- used_up(job, limit): whether this limit, or else the one in its record, leaves it no attempt
local function used_up(job, limit)
  limit = limit or job.limit ~= '' and tonumber((string.match(job.limit, '^%d+')))
  return limit and tonumber(job.spent) >= limit
end

-- stamp(job, limit): takes down the limit that is in force; one of its own stays as it is
local function stamp(job, limit)
  if not string.find(job.limit, '!') then job.limit = limit and plus(limit, 0) or '' end
end
