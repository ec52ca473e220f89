-- Starts the TTL of locks anew that have their owner's value, one or several of
-- different callers.
--
-- KEYS  for n locks: n locks
-- ARGV  1 nothing   then for each lock the owner value and the TTL in ms
-- Answers for one lock 0 there is no such key   1 renewed   2 the key is another's
--
-- Nothing is written that memory could be too full for.

local found = call('MGET', unpack(KEYS))

return several(#KEYS, function(i)
	if not owns(found[i], ARGV[2 * i]) then
		return call('EXISTS', KEYS[i]) * 2
	end
	return prolong(KEYS[i], ARGV[2 * i + 1])
end)
