-- retry(id, attempt, token, error, due ...) -> per item: ok | !id attempt exhausted | stale N | why it is not held
-- include: ending
return end_attempts(function(job) return used_up(job) and 'exhausted' end)
