-- One node's votes for locks: each is taken here if it is free here. Behind counter.lua.
--
-- The text that servers get begins with the run_id of the server that it is for. A server that was
-- restarted does not know it any more, and must not be given it before somebody has looked how long
-- it has been up: NOSCRIPT is what the restart guard rests on.
--
-- KEYS  for each lock: the note that this value is void   the lock   the note that somebody waits (the lock again,
--       where the caller does not wait)   the counter of tokens (the lock again, where none are wanted)
-- ARGV  1 "tokens" if tokens are wanted   for each lock: the owner   the TTL in ms   the time of the request, of 16
--       digits
--
-- Answers the lowest token that could follow here, or 1 where none is wanted: granted
--         {AGAIN, token}            granted before to this same value (R11)
--         {AGAIN, token, "raised"}  that too, and the counter was raised here to its token, or above it by RaiseToken
--         {HELD, ms, holder}        held by another, named by the first 16 characters of its value, for so long;
--                                   negative: it has no expiry
--         {VOID, 0}                 the value is void: the attempt was given up
--         {FOREIGN, ms}             the key is there but is no string, so nobody's lock

local found, now = call('MGET', unpack(KEYS)), nil

-- follows is the lowest token that could follow on this counter. The clock is the floor, so that tokens go on rising
-- where counters were lost.
local function follows(counter)
	if ARGV[1] ~= 'tokens' then
		return 1
	end
	if not now then
		local time = call('TIME')
		now = time[1] * 1000000 + time[2]
	end
	return math.max((counter and tonumber(string.match(counter, '^%d+')) or 0) + 1, now)
end

-- held answers that another has the lock, and notes that the caller waits. pcall: with full memory, held is held all
-- the same.
local function held(lock, note, value)
	local left = call('PTTL', lock)
	if note ~= lock then
		local life = left < 0 and 62000 or left + 2000
		pcall_('SET', note, '1', 'NX', 'PX', life)
		prolong(note, life)
	end
	return {HELD, left, string.sub(value, 18, 33)}
end

return each(0, 4, 3, function(k, a)
	local lock, value, counter, owner, ttl = KEYS[k + 1], found[k + 1], found[k + 3], ARGV[a], ARGV[a + 1]
	if found[k] then
		return {VOID, 0}
	elseif value and not owns(value, owner) then
		return held(lock, KEYS[k + 2], value)
	end
	local raised = value and ARGV[1] == 'tokens' and raisedBy(counter, owner)
	if raised then
		prolong(lock, ttl)
		return {AGAIN, raised, 'raised'}
	end
	local token = follows(counter)
	-- 2^53 - 1, up to where a Lua number counts exactly. (Written so that NaN is refused too.)
	if not (token <= 9007199254740991) then
		return redis.error_reply('LOCKER the counter in ' .. KEYS[k + 3] .. ' cannot rise any more; delete that key')
	elseif not value and call('SET', lock, ARGV[a + 2] .. ' ' .. owner, 'NX', 'PX', ttl) then
		return token
	end
	value = get(lock)
	if not value then
		return {FOREIGN, call('PTTL', lock)}
	elseif not owns(value, owner) then
		return held(lock, KEYS[k + 2], value) -- one of the others in this script has just taken it
	end
	prolong(lock, ttl)
	return {AGAIN, token}
end)
