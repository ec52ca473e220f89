-- Releases a lock and, in the same step, acquires it for the next caller of the same client, or
-- keeps it for another client.
--
-- KEYS  1 the counter of tokens   2 the note that the next value is void   3 the lock
--       4 the note that somebody waits
-- ARGV  1 the owner value that has the lock   2 the next one   3 the TTL in ms   4 "1" if it is another
--       client's turn, if one waits
--
-- Answers the token: granted to the next
--         {1, token} granted before to this same value
--         {2, 0}     the next value is void, and nothing was changed
--         {4, state} the lock is not the old holder's, and nothing was changed: 0 there is no such
--           key   2 it is another's
--         {5, 0}     released: it is another client's turn

local found = call('MGET', unpack(KEYS))
local value, line = found[3], found[4]
if owns(value, ARGV[2]) then
	prolong(KEYS[3], ARGV[3])
	return {1, tonumber(string.sub(value, 1, 16))}
end
if not owns(value, ARGV[1]) then
	return {4, call('EXISTS', KEYS[3]) * 2}
end
if found[2] then
	return {2, 0}
end
local first, name, ms = string.match(ARGV[4] == '1' and line or '', '^((%x+)=(%d+);)')
if first then
	-- The lock is kept for the client that has waited longest, and everybody is told for whom. If
	-- that client does not come for it, it is anybody's after those ms.
	call('SET', KEYS[3], 'turn ' .. name, 'PX', ms)
	if #line > #first then
		redis.pcall('SET', KEYS[4], string.sub(line, #first + 1), 'KEEPTTL')
	else
		redis.pcall('DEL', KEYS[4]) -- the lock is released, and that must be the answer
	end
	redis.pcall('PUBLISH', KEYS[3] .. ':wake', name)
	return {5, 0}
end
local token, digits, failed = draw(found[1])
if failed then
	return failed
end
call('SET', KEYS[1], digits)
call('SET', KEYS[3], digits .. ' ' .. ARGV[2], 'PX', ARGV[3])
return token
