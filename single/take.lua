-- Stands before the scripts that acquire locks. Behind tokens.lua.
--
-- KEYS  1 the counter of tokens
--       for each lock: the note that this value is void   the lock   the note that somebody waits (the lock again,
--       where the caller does not wait)
-- ARGV  1 the name of the client that asks   for each lock: the owner   the TTL in ms
--
-- Answers the token, {AGAIN, token}, {HELD, ms}, {VOID, 0}, {FOREIGN, ms}, {SHARERS, ms}, {FULL, n}. Whenever the
-- answer is an error (no memory, a command or key that the ACL does not allow), the lock was not taken.

local me = ARGV[1]
local counter, voided
if #KEYS == 4 then
	voided = call('MGET', KEYS[1], KEYS[2])
	counter = voided[1]
else
	local keys = {KEYS[1]}
	for k = 2, #KEYS, 3 do
		keys[#keys + 1] = KEYS[k]
	end
	local found = call('MGET', unpack(keys))
	counter, voided = found[1], {}
	for i = 2, #keys do
		voided[3 * i - 4] = found[i] -- by the index of the lock's first key
	end
end
local token, digits, failed = draw(counter)
if failed then
	return failed
end
local counted

-- held answers that another has the lock, for so many ms (as long as its key lasts, if left is nil), and notes that
-- the client waits.
local function held(lock, note, left)
	left = left or call('PTTL', lock)
	if note ~= lock then
		-- The note says who waits, the first in front. It outlives the holder's TTL a little, since a waiter asks
		-- again only after it. Some 150 clients are in line. The clients behind them poll, since each refusal reads
		-- the line.
		local list = get(note) or ''
		local new = #list < 1400 and not string.find(list, me .. ';', 1, true)
		local life, has = left < 0 and 62000 or left + 2000, call('PTTL', note)
		if new or has < life then
			pcall_('SET', note, new and list .. me .. ';' or list, 'PX', math.max(life, has))
		end
	end
	return {HELD, left}
end

-- granted raises the counter, once, and answers with the token. Where that cannot be written the lock is given back.
local function granted(lock)
	if not counted then
		local written = pcall_('SET', KEYS[1], digits)
		if written.err then
			call('DEL', lock, lock .. ':shared')
			return written
		end
		counted = true
	end
	return token
end
