-- Takes locks back: as release.lua removes them, and leaves a note that their value must not be granted any more.
--
-- KEYS  for each lock: the lock   the note that somebody waits   the note that the value is void
-- ARGV  1 the command that publishes   for each lock: the owner   for how long it is void, in ms
-- Answers 1, GONE, THEIRS
--
-- A server whose memory is full refuses writes but not removals: so the lock goes first. Where the note is refused
-- that is the answer, and the caller asks again.

return each(0, 3, 2, function(k, a)
	local lock, owner, answer = KEYS[k], ARGV[a], 1
	local value = get(lock)
	if not owns(value, owner) and not owns(value, owner .. KEPT) then
		answer = missing(lock)
	elseif call('DEL', lock, KEYS[k + 1]) == 2 then
		wake(lock, ARGV[1])
	end
	return void(KEYS[k + 2], ARGV[a + 1], answer)
end)
