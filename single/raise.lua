-- Raises the fencing counter of a lock that is held, so that later tokens are
-- greater than one that was given out elsewhere.
--
-- KEYS  1 the lock   2 its fencing counter
-- ARGV  1 the owner value   2 the token   3 how long a counter lives: "expire" or "keep"
-- Answers 0 there is no such lock   1 the counter stands at the token or higher   2 the lock is another's

local found = redis.call('MGET', KEYS[1], KEYS[2])
if found[1] ~= ARGV[1] then
	return redis.call('EXISTS', KEYS[1]) * 2
end
local token = tonumber(ARGV[2])
if (tonumber(found[2] or 0) or 0) >= token then
	return 1
end
if ARGV[3] == 'keep' then
	redis.call('SET', KEYS[2], ARGV[2])
	return 1
end
local time = redis.call('TIME')
local ahead = math.max(0, token - (time[1] * 1000000 + time[2]))
redis.call('SET', KEYS[2], ARGV[2], 'PX', string.format('%.0f', ahead / 1000 + 86400000))
return 1
