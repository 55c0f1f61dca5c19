-- fail(id, attempt, token, error, '' ...) -> per item: !id attempt rejected | stale N | why it is not held
-- include: ending
return end_attempts(function() return 'rejected' end)
