-- seen: the waiting jobs in some of their list, as they are looked at
-- include: jobs
local same, shared

-- seen(members) -> error reply, ids, per id the job, if there is one, and its sequence. Neighbors whose records
-- differ in that alone share a table.
local function seen(members)
  local ids, jobs, sequences = ids_of(members), {}, {}
  local texts = #ids > 0 and call('HMGET', JOBS, unpack(ids)) or {}
  for i, text in ipairs(texts) do
    if text then
      local sequence, rest = string.match(text, '^(%d+)( .*)$')
      if not same or rest ~= same then same, shared = rest, read(text) end
      if not shared or shared.state == 'x' then return unreadable(ids[i], text) end
      jobs[i], sequences[i] = shared, sequence
    end
  end
  return nil, ids, jobs, sequences
end
