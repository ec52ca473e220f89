-- Keeps the places of sharers that have released a lock: retain.lua for those who share one. Behind sharers.lua.
-- Nobody is woken: a writer that waits for sharers asks again and again.
--
-- KEYS  for each lock: the lock   the note that the value is void   the set of sharers
-- ARGV  1 nothing   for each lock: the owner   for how long it is kept, in ms
--         for how long it is to be void, in ms; 0: not at all
-- Answers 1, GONE: there is no such sharer, THEIRS

local function remain(lock, set, owner, keep)
	if not string.find(get(lock) or '', '^shared ') then
		return missing(lock)
	end
	local now = sharers(lock)
	if call('ZREM', set, owner) == 0 then -- the first write, so that full memory does not refuse ZADD
		return call('ZSCORE', set, owner .. KEPT) and 1 or {GONE, 0}
	end
	call('ZADD', set, now + keep, owner .. KEPT)
	local life = tonumber(call('ZRANGE', set, -1, -1, 'WITHSCORES')[2]) - now + 1000
	call('PEXPIRE', lock, life)
	call('PEXPIRE', set, life)
	return 1
end

return each(0, 3, 3, function(k, a)
	local answer, ms = remain(KEYS[k], KEYS[k + 2], ARGV[a], ARGV[a + 1]), ARGV[a + 2]
	return ms ~= '0' and void(KEYS[k + 1], ms, answer) or answer
end)
