-- keys: names for KEYS, in the order of durableq/keys.py; the only place that counts them
local META, WAITING, FRONT, RANKED, DELAYED, LEASES, JOBS, PAYLOADS, ERRORS, HEADERS,
  FAILED, FAILURES, RETIRED, CANCELLED, RECEIPTS, BELL, ROOM, PROMISED, WORKERS, HISTORY = unpack(KEYS)
local call = redis.call
