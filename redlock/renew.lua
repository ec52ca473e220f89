-- Starts a lock's TTL anew on one node of a quorum, if the lock is there. With a token it is the second phase of the token once more, so that
-- a node that came to the lock late counts only if nobody has held the lock since.
--
-- KEYS  1 the lock   2 the fencing counter, with a token      ARGV  1 the owner value   2 the TTL in ms   3 the token   4 "keep" or "expire"
-- Answers 0 there is no lock   1 renewed   2 the lock is another's   3 another has raised the counter as high or higher

local found = redis.call('MGET', unpack(KEYS))
if found[1] ~= ARGV[1] then
	return redis.call('EXISTS', KEYS[1]) * 2
end
if ARGV[3] then
	local token = tonumber(ARGV[3])
	if not admits(found[2], token, ARGV[1]) then
		return 3
	end
	-- Within a minute of the full day it is left as it is, which saves a write at most renewals.
	local left = found[2] and redis.call('PTTL', KEYS[2]) or 0
	if not found[2] or tonumber(string.match(found[2], '^%d+')) < token or (left >= 0 and left < 86340000) then
		raise(KEYS[2], found[2], token, ARGV[1], ARGV[4])
	end
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
