-- Removes all who share a lock with this token. Copies of their requests that are still under way find
-- themselves void.
--
-- KEYS  1 the lock   2 the note that somebody waits
-- ARGV  1 the command that publishes   2 the token, of 16 digits   3 for how long they are void, in ms
-- Answers 0 there are none   1 removed

if string.match(call('MGET', KEYS[1])[1] or '', '^shared (%d+)') ~= ARGV[2] then
	return 0
end
local set = KEYS[1] .. ':shared'
for _, owner in ipairs(call('ZRANGE', set, 0, -1)) do
	void(KEYS[1] .. ':void:' .. owner, ARGV[3])
end
call('DEL', KEYS[1], set)
if call('DEL', KEYS[2]) == 1 then
	wake(KEYS[1])
end
return 1
