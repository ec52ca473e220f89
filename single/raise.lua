-- Raises the counter of tokens, for the holder of a lock, so that later tokens are greater than one that was given out
-- elsewhere.
--
-- KEYS  1 the counter of tokens   2 the lock      ARGV  1 nothing   2 the owner   3 the token
-- Answers 1: the counter stands at the token or higher   GONE, THEIRS

local found = call('MGET', KEYS[1], KEYS[2])
if not owns(found[2], ARGV[2]) then
	return {missing(KEYS[2])}
elseif (tonumber(found[1] or 0) or 0) < tonumber(ARGV[3]) then
	call('SET', KEYS[1], ARGV[3])
end
return {1}
