-- Releases a lock and, in the same step, acquires it for the next caller of the same client. It
-- stands before acquire.lua, which goes on from here.
--
-- KEYS  as there, for one lock
-- ARGV  as there, for one lock   4 the owner value that has the lock now
--       5 "1" if it is another client's turn, if one waits
--
-- Answers, beside those of acquire.lua
--         {4, state} the lock is not the old holder's, and nothing was changed: 0 there is no such
--           key   2 it is another's
--         {5, 0}     released: it is another client's turn

local old, turn = ARGV[4], ARGV[5] == '1'
ARGV[4], ARGV[5] = nil, nil
local found = call('MGET', KEYS[1], KEYS[4])
if found[1] ~= old and found[1] ~= ARGV[2] then
	return {4, call('EXISTS', KEYS[1]) * 2}
end
if turn and found[1] == old and found[2] then
	local first, name, ms = string.match(found[2], '^((%x+)=(%d+);)')
	local rest = first and string.sub(found[2], #first + 1) or ''
	-- The lock is kept for the client that has waited longest, and everybody is told for whom. If
	-- that client does not come for it, it is anybody's after those ms.
	if first then
		call('SET', KEYS[1], 'turn:' .. name, 'PX', ms)
	else
		call('DEL', KEYS[1]) -- a client of an earlier release of this library does not say who it is
	end
	if rest ~= '' then
		redis.pcall('SET', KEYS[4], rest, 'KEEPTTL')
	else
		call('DEL', KEYS[4])
	end
	redis.pcall('PUBLISH', KEYS[1] .. ':wake', name or '')
	return {5, 0}
end
