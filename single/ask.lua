-- Stands before the scripts that acquire locks, one or several of different callers, each for itself.
--
-- KEYS  1 the counter of tokens
--       for n locks: n notes that this value is void   n locks   n notes that somebody waits (where
--         the caller does not wait, the first of its keys again, or for one lock nothing)
-- ARGV  1 the mark of the client that asks, among those who wait: NAME=MS; where MS is for how long it
--         is its turn
--       then for each lock the owner value and the TTL in ms
--
-- Answers for one lock
--         the token: granted
--         {0, ms}    held by another for so long; negative: it has no expiry
--         {1, token} granted before to this same value
--         {2, 0}     the value is void
--         {3, ms}    the key is there but is no string, so nobody's lock
--         {6, ms}    held by sharers for so long; a writer that waits has left its note
--         {7, n}     so many share it, and no more can
--
-- Scripts replicate by their effects, so that TIME may come before a write. Whenever the answer is an error (no memory, a command or key that the ACL does not
-- allow), the lock was not taken.

local n = (#ARGV - 1) / 2
local mark, name = ARGV[1], string.match(ARGV[1], '^%x+')
-- MGET and not GET, which would fail on a key of another type.
local found = call('MGET', unpack(KEYS, 1, n + 1))
local token, digits, failed = draw(found[1])
if failed then
	return failed
end
local counted

-- waits is the note in which the i-th is to say that it waits; nil: it does not.
local function waits(i)
	local note = KEYS[2 * n + 1 + i]
	return note ~= KEYS[1 + i] and note or nil
end

-- held answers that another has the lock, for so many ms (as long as its key lasts, if left is nil).
local function held(lock, note, left)
	left = left or call('PTTL', lock)
	if note then
		-- It says who waits, the first in front. It outlives the holder's TTL a little,
		-- since whoever waits asks again only after it.
		local list = call('MGET', note)[1] or ''
		-- Some 150 clients are in line. The clients behind them poll, since each refusal reads the line.
		local new = #list < 2000 and not string.find(list, name .. '=', 1, true)
		local life, has = left < 0 and 62000 or left + 2000, call('PTTL', note)
		if new or has < life then
			redis.pcall('SET', note, new and list .. mark or list, 'PX', math.max(life, has))
		end
	end
	return {0, left}
end

-- granted raises the counter, once, and answers with the token. Where the counter cannot be written
-- the lock is given back.
local function granted(lock)
	if not counted then
		local written = redis.pcall('SET', KEYS[1], digits)
		if written.err then
			call('DEL', lock, lock .. ':shared')
			return written
		end
		counted = true
	end
	return token
end
