-- Reads the state of a lock and changes nothing.
--
-- KEYS  1 the lock   2 its fencing counter   3 the note that somebody waits
-- Answers {the owner value or nil, the TTL in ms (-1: none, -2: no such key), the counter or nil, 1
--       if somebody waits}

local found = redis.call('MGET', KEYS[1], KEYS[2])
return {found[1], redis.call('PTTL', KEYS[1]), found[2], redis.call('EXISTS', KEYS[3])}
