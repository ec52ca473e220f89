-- Reads who shares a lock, and changes nothing.
--
-- KEYS  1 the lock
-- Answers {how many, the ms until the last of them ends, the owner values of 16 at most}, or 0 if the
-- lock is not shared

if not string.find(call('MGET', KEYS[1])[1] or '', '^shared ') then
	return 0
end
local time, set = redis.call('TIME'), KEYS[1] .. ':shared'
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last = tonumber(call('ZRANGE', set, -1, -1, 'WITHSCORES')[2])
return {call('ZCOUNT', set, now, '+inf'), last and last - now or 0,
	call('ZRANGE', set, '+inf', now, 'BYSCORE', 'REV', 'LIMIT', 0, 16)}
