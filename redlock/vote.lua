-- One node's vote for a lock: taken here if it is free here. Or its votes for several locks of
-- different callers, each for itself.
--
-- The text that servers get begins with the run_id of the server that it is for. A server that was
-- restarted does not know it any more, and must not be given it before somebody has looked how long
-- it has been up: NOSCRIPT is what the restart guard rests on.
--
-- KEYS  for n locks: n locks   n notes that this value is void   n fencing counters, read if tokens
--       are wanted
--       n notes that somebody waits (where the caller does not wait, the lock's own key, or for one
--         lock nothing)
-- ARGV  1 "none", or anything else if tokens are wanted   then for each lock the owner value and
--       the TTL in ms
--
-- Answers for one lock the lowest token that could follow here, or 0 where none is wanted: granted
--         {0, ms, holder}  held by another, named by the first 16 characters of its value, for so
--           long; negative: it has no expiry
--         {1, token}       granted before to this same value (R11)
--         {4, token}       that too, and the counter was raised here to its token, or above it by RaiseToken
--         {2, 0}           the value is void: the attempt was given up
--         {3, ms}          the key is there but is no string, so nobody's lock

local n = (#ARGV - 1) / 2
local tokens = ARGV[1] ~= 'none'
-- MGET and not GET, which would fail on a key of another type.
local found = call('MGET', unpack(KEYS, 1, tokens and 3 * n or 2 * n))
local now

local function held(i, holder)
	local left = call('PTTL', KEYS[i])
	local note = KEYS[3 * n + i]
	if note and note ~= KEYS[i] then
		local life = left < 0 and 62000 or left + 2000
		-- pcall: with full memory, held is held all the same.
		redis.pcall('SET', note, '1', 'NX', 'PX', life)
		prolong(note, life)
	end
	return {0, left, string.sub(holder, 1, 16)}
end

local function vote(i)
	local holder, owner, ttl = found[i], ARGV[2 * i], ARGV[2 * i + 1]
	if found[n + i] then
		return {2, 0}
	end
	if holder and holder ~= owner then
		return held(i, holder)
	end

	local token = 0
	if tokens then
		local counter = found[2 * n + i]
		if holder and counter then
			local token, by = string.match(counter, '^(%d+) (.*)$')
			local own, whose = string.match(by or '', '^%+(%d+) (.*)$')
			if by == owner or whose == owner then
				prolong(KEYS[i], ttl)
				return {4, tonumber(own or token)}
			end
		end
		if not now then
			local time = call('TIME')
			now = time[1] * 1000000 + time[2]
		end
		-- The clock is the floor, so that tokens go on rising where counters were lost.
		token = math.max((counter and tonumber(string.match(counter, '^%d+')) or 0) + 1, now)
		-- 2^53 - 1, up to where a Lua number counts exactly. (Written so that NaN is refused too.)
		if not (token <= 9007199254740991) then
			return redis.error_reply('LOCKER the counter in ' .. KEYS[2 * n + i]
				.. ' cannot rise any more; delete that key')
		end
	end

	if holder then
		prolong(KEYS[i], ttl)
		return {1, token}
	end
	if call('SET', KEYS[i], owner, 'NX', 'PX', ttl) then
		return token
	end
	holder = call('MGET', KEYS[i])[1]
	if not holder then
		return {3, call('PTTL', KEYS[i])}
	end
	-- One of the others in this script has just taken it, or this very request, which came twice.
	return holder == owner and {1, token} or held(i, holder)
end

return several(n, vote)
