-- Raises the counter of tokens, for the holder of a lock, so that later tokens are greater than one
-- that was given out elsewhere.
--
-- KEYS  1 the counter of tokens   2 the lock
-- ARGV  1 the owner value   2 the token
-- Answers 0 there is no such lock   1 the counter stands at the token or higher   2 the lock is another's

local found = call('MGET', KEYS[1], KEYS[2])
if not owns(found[2], ARGV[1]) then
	return call('EXISTS', KEYS[2]) * 2
end
if (tonumber(found[1] or 0) or 0) < tonumber(ARGV[2]) then
	call('SET', KEYS[1], ARGV[2])
end
return 1
