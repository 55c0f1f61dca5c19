-- destroy() -> {ok}: ends the queue's lifetime, every key of it gone
-- include: keys
call('UNLINK', unpack(KEYS))
return { 'ok' }
