-- jobs: reading the active jobs, and their place among the leases
-- include: keys record

-- load(ids) -> {id: job}, or nil and an error reply. Where an id stands twice, both share its table.
local function load(ids)
  local jobs, texts = {}, #ids > 0 and call('HMGET', JOBS, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    if texts[i] and not jobs[id] then
      jobs[id] = read(texts[i])
      if not jobs[id] then
        return nil, redis.error_reply('CORRUPT the record of job ' .. id .. ' cannot be read: ' .. texts[i])
      end
    end
  end
  return jobs
end

-- member(id, job): a job in LEASES. Equal times sort by member, hence by sequence.
local function member(id, job)
  return string.rep('0', 13 - #job.sequence) .. job.sequence .. id
end
