-- Releases a lock and, in the same step, acquires it for the next caller of the same client, or keeps it for another
-- client for a turn (TURN_MS). Behind tokens.lua.
--
-- KEYS  1 the counter of tokens   2 the note that the next value is void   3 the lock   4 the note that somebody waits
-- ARGV  1 the command that publishes   2 the owner that has the lock   3 the next one   4 the TTL in ms
--       5 "1" if it is another client's turn, if one waits   6 the name of the client that asks
--
-- Answers the token, {AGAIN, token}, {VOID, 0}, {GONE, 0} and {THEIRS, 0} of the old holder: in these three nothing
-- was changed; {TURN, 0}: released, it is another client's turn

local found = call('MGET', unpack(KEYS))
local lock, value, line = KEYS[3], found[3], ARGV[5] == '1' and found[4] or ''
if owns(value, ARGV[3]) then
	prolong(lock, ARGV[4])
	return {{AGAIN, tonumber(string.sub(value, 1, 16))}}
elseif not owns(value, ARGV[2]) and not owns(value, ARGV[2] .. KEPT) then
	return {missing(lock)}
elseif found[2] then
	return {{VOID, 0}}
end

-- It is the turn of the client that has waited longest, of the others that are there: each listens on a channel of
-- its own, and is woken by that. One that has lost its connection comes again when it has another. (An error is the
-- ACL's, and says nothing of them.)
local first, rest
for name, behind in string.gmatch(line, '(%x+);()') do
	local there = name ~= ARGV[6] and pcall_(ARGV[1], lock .. ':wake:' .. name, '') or 0
	rest = string.sub(line, behind)
	if type(there) == 'table' or there > 0 then
		first = name
		break
	end
end
if first then
	-- The lock is kept for it, and everybody is told for whom. If it does not come, the lock is anybody's after that.
	call('SET', lock, 'turn ' .. first, 'PX', TURN_MS)
	if rest ~= '' then
		pcall_('SET', KEYS[4], rest, 'KEEPTTL')
	else
		pcall_('DEL', KEYS[4]) -- the lock is released, and that must be the answer
	end
	wake(lock, ARGV[1], first)
	return {{TURN, 0}}
end
local token, digits, failed = draw(found[1])
if failed then
	return failed
end
call('SET', KEYS[1], digits)
call('SET', lock, digits .. ' ' .. ARGV[3], 'PX', ARGV[4])
if rest then
	pcall_('SET', KEYS[4], '', 'KEEPTTL') -- nobody of them is there; those behind the line poll, and are told
end
return {token}
