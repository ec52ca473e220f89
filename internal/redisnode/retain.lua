-- Keeps locks that have their owner's value: nobody has them any more, and they keep the others out until so many ms
-- from now, however long they would have lasted. One that is kept already stays as it is.
--
-- KEYS  for each lock: the lock   the note that somebody waits   the note that the value is void
-- ARGV  1 the command that publishes   for each lock: the owner   for how long it is kept, in ms
--         how long the value is to be void, in ms; 0: not at all
-- Answers 1, GONE, THEIRS

return each(0, 3, 3, function(k, a)
	local lock, owner, ms, answer = KEYS[k], ARGV[a], ARGV[a + 2], 1
	local value = get(lock)
	if owns(value, owner) then
		-- In this order: full memory refuses SET only if no other write comes before it.
		call('PEXPIRE', lock, ARGV[a + 1])
		call('SET', lock, value .. KEPT, 'KEEPTTL')
		if call('EXISTS', KEYS[k + 1]) == 1 then
			wake(lock, ARGV[1]) -- those who wait were told of a longer time
		end
	elseif not owns(value, owner .. KEPT) then
		answer = missing(lock)
	end
	return ms ~= '0' and void(KEYS[k + 2], ms, answer) or answer
end)
