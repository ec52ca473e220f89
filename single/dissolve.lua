-- Removes all who share a lock with this token.
--
-- KEYS  1 the lock   2 the note that somebody waits
-- ARGV  1 the command that publishes   2 the token, of 16 digits
-- Answers 0 there are none   1 removed

if string.match(call('MGET', KEYS[1])[1] or '', '^shared (%d+)') ~= ARGV[2] then
	return 0
end
call('DEL', KEYS[1], KEYS[1] .. ':shared')
if call('DEL', KEYS[2]) == 1 then
	wake(KEYS[1])
end
return 1
