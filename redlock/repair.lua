-- Gives a lock to a node that has lost it or never had it, while a quorum of the others has just
-- granted or renewed it.
--
-- KEYS  1 the lock   2 the note that this value is void   3 the fencing counter, with a token
-- ARGV  1 the owner value   2 the TTL in ms   3 the token   4 what its counter is to stand at
-- Answers 0 the value is void: the lock was released   1 it is there now   2 the lock is another's
--       3 another has raised the counter as high or higher

local found = redis.call('MGET', unpack(KEYS))
if found[2] then
	return 0
end
if found[1] and found[1] ~= ARGV[1] then
	return 2
end
-- The counter first: a repair that arrives late must not bring back a lock that another has had meanwhile.
if ARGV[3] then
	local own = tonumber(ARGV[3])
	if not admits(found[3], own, ARGV[1]) then
		return 3
	end
	raise(KEYS[3], found[3], own, tonumber(ARGV[4]), ARGV[1])
end
if found[1] then
	if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then -- as prolong in value.lua
		redis.call('PEXPIRE', KEYS[1], ARGV[2])
	end
	return 1
end
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
	return 1
end
return 2
