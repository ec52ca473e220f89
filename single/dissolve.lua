-- Removes all who share a lock with this token. Copies of their requests that are still under way find
-- themselves void.
--
-- KEYS  1 the lock   2 the note that somebody waits
-- ARGV  1 the command that publishes   2 the token, of 16 digits   3 for how long they are void, in ms
-- Answers 0 there are none   1 removed
--
-- A server whose memory is full refuses the first write of a script, but no removal, and nothing after that:
-- so the sharers go first. Where a note is refused all the same that is the answer.

if string.match(call('MGET', KEYS[1])[1] or '', '^shared (%d+)') ~= ARGV[2] then
	return 0
end
local set = KEYS[1] .. ':shared'
local owners, answer = call('ZRANGE', set, 0, -1), 1
call('DEL', KEYS[1], set)
if call('DEL', KEYS[2]) == 1 then
	wake(KEYS[1])
end
for _, owner in ipairs(owners) do
	local noted = void(KEYS[1] .. ':void:' .. owner, ARGV[3], 1)
	answer = noted ~= 1 and noted or answer
end
return answer
