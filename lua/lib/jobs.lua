-- jobs: reading the active jobs, and their place in sorted sets
-- include: keys record

local function unreadable(id, text)
  return redis.error_reply('CORRUPT the record of job ' .. id .. ' cannot be read: ' .. text)
end

-- load(ids, reader) -> {id: job}, or nil and an error reply. Where an id stands twice, both share its
-- table. The reader is `read`, if not one that tells less.
local function load(ids, reader)
  local jobs, texts = {}, #ids > 0 and call('HMGET', JOBS, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    if texts[i] and not jobs[id] then
      jobs[id] = (reader or read)(texts[i])
      if not jobs[id] or jobs[id].state == 'x' then
        return nil, unreadable(id, texts[i])
      end
    end
  end
  return jobs
end

-- place(id, sequence), member(id, job): a job in a list or a sorted set. Equal scores sort by member, hence
-- by sequence.
local digits, zeros -- of one as of the next

local function place(id, sequence)
  if #sequence ~= digits then digits, zeros = #sequence, string.rep('0', 13 - #sequence) end
  return zeros .. sequence .. id
end

local function member(id, job)
  return place(id, job.sequence)
end

-- stands(text, job): whether this member of a list is where the job waits. It is given a new sequence
-- whenever it joins one, so what it leaves behind there, a ghost, never counts again.
local function stands(text, job)
  return job and job.state == 'w' and tonumber(string.sub(text, 1, 13)) == tonumber(job.sequence)
end

-- ids_of(members): the ids of such
local function ids_of(members)
  local ids = {}
  for i, text in ipairs(members) do ids[i] = string.sub(text, 14) end
  return ids
end

-- rank(job, released): its score in RANKED, which goes before the lists where it is negative. What is
-- released goes before all else of its priority; each has a span of its own.
local SPAN = 1099511627776 -- 2^40

local function rank(job, released)
  return string.format('%.0f', -(2 * job.priority + (released and 1 or 0)) * SPAN + job.sequence)
end
