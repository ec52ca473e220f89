-- Acquires locks, one or several of different callers, each for itself.
--
-- KEYS  for n locks: n locks   n notes that this value is void   n fencing counters
--       n notes that somebody waits (where the caller does not wait, the lock's own key, or for one
--         lock nothing)
-- ARGV  1 how long a counter lives: "expire" (a day longer than its use) or "keep" (for ever),
--         a space, and who asks: the mark of a client among those who wait, as NAME=MS; where MS is
--           for how long it is its turn
--       then for each lock the owner value and the TTL in ms
--
-- Answers for one lock
--         the token: granted
--         {0, ms}    held by another for so long; negative: it has no expiry
--         {1, token} granted before to this same value
--         {2, 0}     the value is void
--         {3, ms}    the key is there but is no string, so nobody's lock
--
-- Commands are those of Redis 6.2, where scripts replicate by their effects, so that TIME may come
-- before a write. The SET of the lock is the last command that can fail: whenever the answer is an
-- error (no memory, a command or key that the ACL does not allow), the lock was not taken. What is
-- not needed is not sent, and the common answer is a bare number: each argument costs the server
-- about 0.2 µs of 4, and starting a script 2, which several locks share.

-- old, which stands before this text, is nil, or for pass.lua the owner value that
-- has the lock and gives it up.

local n = (#ARGV - 1) / 2
-- MGET and not GET, which would fail on a key of another type.
local found = n == 1 and call('MGET', KEYS[1], KEYS[2], KEYS[3]) or call('MGET', unpack(KEYS, 1, 3 * n))
local now, nowText

local function asker() -- its mark, and its name
	return string.match(ARGV[1], ' ((%x+)=%d+;)')
end

local function isTurn(holder)
	return holder and string.sub(holder, 1, 5) == 'turn:'
end

-- waits is the note in which the i-th is to say that it waits; nil: it does not.
local function waits(i)
	local note = KEYS[3 * n + i]
	return note ~= KEYS[i] and note or nil
end

local function held(i)
	local left = call('PTTL', KEYS[i])
	local note = waits(i)
	if note then
		-- It says who waits, the first in front. It outlives the holder's TTL a little,
		-- since whoever waits asks again only after it. pcall: with full memory, held
		-- is held all the same.
		local list, mark, name = call('MGET', note)[1] or '', asker()
		-- Some 150 clients are in line. The clients behind them poll, since each refusal reads the line.
		local new = #list < 2000 and not string.find(list, name, 1, true)
		local life, has = left < 0 and 62000 or left + 2000, call('PTTL', note)
		if new or has < life then
			redis.pcall('SET', note, new and list .. mark or list, 'PX', math.max(life, has))
		end
	end
	return {0, left}
end

local function take(i)
	local holder, owner, ttl = found[i], ARGV[2 * i], ARGV[2 * i + 1]
	if found[n + i] and holder ~= owner then
		return {2, 0}
	end
	local mode = 'NX' -- since MGET shows nothing where the key is of another type
	if isTurn(holder) then
		-- It is nobody's, and pass.lua keeps it for the next client: that one takes it,
		-- and so does a client that does not wait. One of the others in this script may just have.
		holder = call('MGET', KEYS[i])[1]
		if isTurn(holder) then
			if waits(i) and holder ~= 'turn:' .. select(2, asker()) then
				return held(i)
			end
			mode = 'XX'
		end
		holder = false
	elseif holder and holder ~= owner then
		if holder ~= old then
			return held(i)
		end
		holder, mode = false, 'XX'
	end

	local token = tonumber(found[2 * n + i] or 0) or 0
	-- The same request once more, its first reply lost (R11), gets the token that was minted then.
	if not holder or token == 0 then
		-- The clock is the floor, so that tokens go on rising where the counter was
		-- lost (a restart without data, FLUSHALL, expiry).
		if not now then
			local time = call('TIME')
			now = time[1] * 1000000 + time[2]
			-- %.0f since tostring would write 1.7e+15.
			nowText = string.format('%.0f', now)
		end
		local text, life = nowText, '86400000'
		if token < now then
			token = now
		else
			token = token + 1
			-- 2^53 - 1, up to where a Lua number counts exactly: in microseconds, the
			-- year 2255. (Written so that NaN is refused too.)
			if not (token <= 9007199254740991) then
				return redis.error_reply('LOCKER the counter in ' .. KEYS[2 * n + i]
					.. ' cannot rise any more; delete that key')
			end
			-- A day, and until the clock, which was set back behind the counter, has caught up as well.
			text, life = string.format('%.0f', token), 86400000 + math.ceil((token - now) / 1000)
		end
		if string.sub(ARGV[1], 1, 4) == 'keep' then
			call('SET', KEYS[2 * n + i], text)
		else
			call('SET', KEYS[2 * n + i], text, 'PX', life)
		end
	end

	if holder then
		call('PEXPIRE', KEYS[i], ttl)
		return {1, token}
	end
	if call('SET', KEYS[i], owner, mode, 'PX', ttl) then
		return token
	end
	holder = call('MGET', KEYS[i])[1]
	if not holder then
		return {3, call('PTTL', KEYS[i])}
	end
	-- One of the others in this script has just taken it, or this very request, which came twice.
	return holder == owner and {1, token} or held(i)
end

return several(n, take)
