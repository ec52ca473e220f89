-- One node's vote for a lock: taken here if it is free here.
--
-- The text that servers get begins with the run_id of the server that it is for. A server that was restarted does not know it any more, and
-- must not be given it before somebody has looked how long it has been up: NOSCRIPT is what the restart guard rests on.
--
-- KEYS  1 the lock   2 the note that this value is void   3 the fencing counter, read if tokens are wanted   4 the note that somebody waits, if the caller does
-- ARGV  1 the owner value   2 the TTL in ms   3 present if tokens are wanted
--
-- Answers the lowest token that could follow here, or 0 where none is wanted: granted
--         {0, ms, holder}  held by another, named by the first 16 characters of its value, for so long; negative: it has no expiry
--         {1, token}       granted before to this same value (R11)
--         {4, token}       that too, and the token was raised here for it
--         {2, 0}           the value is void: the attempt was given up
--         {3, ms}          the key is there but is no string, so nobody's lock

-- MGET and not GET, which would fail on a key of another type.
local found = redis.call('MGET', KEYS[1], KEYS[2])
local holder = found[1]

if found[2] then
	return {2, 0}
end

if holder and holder ~= ARGV[1] then
	local left = redis.call('PTTL', KEYS[1])
	if KEYS[4] then
		redis.call('SET', KEYS[4], '1', 'PX', left < 0 and 62000 or left + 2000)
	end
	return {0, left, string.sub(holder, 1, 16)}
end

local token = 0
if ARGV[3] then
	local counter = redis.call('MGET', KEYS[3])[1]
	if holder and counter then
		local n, by = string.match(counter, '^(%d+) (.*)$')
		if by == ARGV[1] then
			redis.call('PEXPIRE', KEYS[1], ARGV[2])
			return {4, tonumber(n)}
		end
	end
	local time = redis.call('TIME')
	-- The clock is the floor, so that tokens go on rising where counters were lost.
	token = math.max((counter and tonumber(string.match(counter, '^%d+')) or 0) + 1, time[1] * 1000000 + time[2])
	-- 2^53 - 1, up to where a Lua number counts exactly. (Written so that NaN is refused too.)
	if not (token <= 9007199254740991) then
		return redis.error_reply('LOCKER the counter in ' .. KEYS[3] .. ' cannot rise any more; delete that key')
	end
end

if holder then
	redis.call('PEXPIRE', KEYS[1], ARGV[2])
	return {1, token}
end
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
	return token
end
return {3, redis.call('PTTL', KEYS[1])}
