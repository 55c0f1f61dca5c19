-- held: held(answer, token) -> ids, {id: job}, number: of the jobs that a reserve answered in its
-- first run, those that its claim token still holds; and how many it answered
-- include: jobs
local function held(answer, token)
  local ids, jobs, number = {}, {}, 0
  for id, attempt in string.gmatch(answer, '([^, ]+) (%d+)') do
    number = number + 1
    local text = call('HGET', JOBS, id)
    local job = text and read(text)
    if job and job.state == 'f' and job.attempt == attempt and job.token == token then
      ids[#ids + 1], jobs[id] = id, job
    end
  end
  return ids, jobs, number
end
