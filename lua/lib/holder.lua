-- holder: who may settle a job, and why not
-- include: jobs fate

-- refusal(id, job, attempt, token): nil for the holder of the job's current attempt; a token, when
-- given, must match, too
local function refusal(id, job, attempt, token)
  if not job then
    return fate(id)
  elseif job.state == 'w' then
    return 'waiting'
  elseif job.state == 'd' then
    return 'delayed'
  elseif job.state ~= 'f' then
    return job.state -- what an earlier item of the batch made of it
  elseif job.attempt ~= attempt or (token ~= '' and job.token ~= token) then
    return 'stale ' .. job.attempt
  end
end
