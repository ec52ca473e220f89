-- Reads the state of a lock, and who shares it, and changes nothing.
--
-- KEYS  1 the lock   2 its counter   3 the note that somebody waits   4 the set of sharers
-- Answers {{the value or nil, the TTL in ms (-1: none, -2: no such key), the counter or nil, 1 if somebody waits,
--           how many share it, the ms until the last of them ends, the owners of 16 at most}}

local found = call('MGET', KEYS[1], KEYS[2])
local many, left, some = 0, 0, {}
if string.find(found[1] or '', '^shared ') then
	local time = call('TIME')
	local now = time[1] * 1000 + math.floor(time[2] / 1000)
	local last = tonumber(call('ZRANGE', KEYS[4], -1, -1, 'WITHSCORES')[2])
	many, left = call('ZCOUNT', KEYS[4], now, '+inf'), last and last - now or 0
	some = call('ZRANGE', KEYS[4], '+inf', now, 'BYSCORE', 'REV', 'LIMIT', 0, 16)
end
return {{found[1], call('PTTL', KEYS[1]), found[2], call('EXISTS', KEYS[3]), many, left, some}}
