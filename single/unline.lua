-- Takes a client that does not wait any more out of those who wait for a lock, and gives up its turn.
--
-- KEYS  1 the lock   2 the note that somebody waits
-- ARGV  1 the command that publishes   2 the name of the client
-- Answers 1
--
-- The note stays, be it empty: a caller of this client that has come meanwhile may rest on it, and the
-- next release then wakes everybody as before.

local found, name = call('MGET', KEYS[1], KEYS[2]), ARGV[2]
local list = found[2] or ''
local from, to = string.find(list, name .. '=%d+;')
if from then
	redis.pcall('SET', KEYS[2], string.sub(list, 1, from - 1) .. string.sub(list, to + 1), 'KEEPTTL')
end
if found[1] == 'turn ' .. name then
	call('DEL', KEYS[1])
	wake(KEYS[1])
end
return 1
