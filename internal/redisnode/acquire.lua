-- Takes a lock if it is free.
--
-- KEYS  1 the lock   2 the note that this value is void
--       3 its fencing counter   4 the note that somebody waits, if the caller does
-- ARGV  1 the owner value   2 the TTL in ms
--       3 the fencing token: "none", "expire" (the counter lives a day longer than its use) or "keep" (for ever)
--       4 if this is the second sending of a request: how long the first, which may yet arrive, is to be void, in ms
--
-- Answers the token, or 0 without one: granted
--         {0, ms}    held by another for so long; negative: it has no expiry
--         {1, token} granted before to this same value
--         {2, 0}     the value is void
--         {3, ms}    the key is there but is no string, so nobody's lock
--
-- Commands are those of Redis 6.2, where scripts replicate by their effects, so that TIME may come before a write.
-- The SET of the lock is the last command that can fail: whenever this script answers an error (no memory, a command or key that the ACL does
-- not allow), the lock was not taken. What is not needed is not sent, and the common answer is a bare number:
-- each argument costs the server about 0.2 µs of 4.

-- MGET and not GET, which would fail on a key of another type.
local found = redis.call('MGET', unpack(KEYS))
local holder, counter = found[1], found[3]

if found[2] and holder ~= ARGV[1] then
	return {2, 0}
end
if ARGV[4] then
	redis.call('SET', KEYS[2], '1', 'PX', ARGV[4])
end

if holder and holder ~= ARGV[1] then
	local left = redis.call('PTTL', KEYS[1])
	if KEYS[4] then
		-- Outlives the holder's TTL a little, since whoever waits asks again only after it.
		redis.call('SET', KEYS[4], '1', 'PX', left < 0 and 62000 or left + 2000)
	end
	return {0, left}
end

local token = 0
if ARGV[3] ~= 'none' then
	token = tonumber(counter or 0) or 0
	-- The same request once more, its first reply lost (R11), gets the token that was minted then.
	if not holder or token == 0 then
		-- The clock is the floor, so that tokens go on rising where the counter was lost (a restart without data, FLUSHALL, expiry).
		local time = redis.call('TIME')
		local now = time[1] * 1000000 + time[2]
		token = math.max(token + 1, now)
		-- 2^53 - 1, up to where a Lua number counts exactly: in microseconds, the year 2255. (Written so that NaN is refused too.)
		if not (token <= 9007199254740991) then
			return redis.error_reply('LOCKER the counter in ' .. KEYS[3] .. ' cannot rise any more; delete that key')
		end
		-- %.0f since tostring would write 1.7e+15.
		local text = string.format('%.0f', token)
		if ARGV[3] == 'keep' then
			redis.call('SET', KEYS[3], text)
		else
			-- A day, and where the clock was set back behind the counter, until it has caught up as well.
			local ahead = token > now and math.ceil((token - now) / 1000) or 0
			redis.call('SET', KEYS[3], text, 'PX', 86400000 + ahead)
		end
	end
end

if holder then
	redis.call('PEXPIRE', KEYS[1], ARGV[2])
	return {1, token}
end
-- NX, since MGET shows nothing where the key is of another type.
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
	return token
end
return {3, redis.call('PTTL', KEYS[1])}
