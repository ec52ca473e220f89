-- Starts a lock's TTL anew if it has the value.
--
-- KEYS  1 the lock   2 its fencing counter      ARGV  1 the owner value   2 the TTL in ms
-- Answers 0 there is no such key   1 renewed   2 the key is another's

local DAY = 86400000 -- ms

local found = redis.call('MGET', KEYS[1], KEYS[2])
if found[1] ~= ARGV[1] then
	return redis.call('EXISTS', KEYS[1]) * 2
end

-- The counter lives for another day from here, and longer while the clock is behind it. (A lock with a TTL above a day can outlive it. Tokens rise
-- all the same, since the clock is their floor.) Within a minute of the full day it is left as it is: that saves a write, and its copy to the
-- replicas, at most renewals. A counter without expiry is kept for ever on purpose.
local left = redis.call('PTTL', KEYS[2])
if left >= 0 and left < DAY - 60000 then
	local time = redis.call('TIME')
	local ahead = (tonumber(found[2]) or 0) - (time[1] * 1000000 + time[2])
	redis.call('PEXPIRE', KEYS[2], string.format('%.0f', math.max(0, ahead) / 1000 + DAY))
end

return redis.call('PEXPIRE', KEYS[1], ARGV[2])
