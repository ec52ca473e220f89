-- Removes all who share a lock with this token. Copies of their requests that are still under way find themselves
-- void.
--
-- KEYS  1 the lock   2 the note that somebody waits
-- ARGV  1 the command that publishes   2 the token, of 16 digits   3 for how long they are void, in ms
-- Answers 1: removed   GONE
--
-- A server whose memory is full refuses the first write of a script, but no removal, and nothing after that: so the
-- sharers go first. Where a note is refused all the same that is the answer.

if string.match(get(KEYS[1]) or '', '^shared (%d+)') ~= ARGV[2] then
	return {{GONE, 0}}
end
local owners, answer = call('ZRANGE', KEYS[1] .. ':shared', 0, -1), 1
call('DEL', KEYS[1], KEYS[1] .. ':shared')
if call('DEL', KEYS[2]) == 1 then
	wake(KEYS[1], ARGV[1])
end
for _, owner in ipairs(owners) do
	local noted = void(KEYS[1] .. ':void:' .. string.gsub(owner, KEPT .. '$', ''), ARGV[3], 1)
	answer = noted ~= 1 and noted or answer
end
return type(answer) == 'table' and answer or {answer}
