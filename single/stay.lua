-- Starts the time of sharers anew: renew.lua for those who share a lock. Behind sharers.lua.
--
-- KEYS  for each lock: the lock   the set of sharers, so that a Cluster that moves a slot, key by key, does not run
--       this where the one is and the other is not yet
-- ARGV  1 nothing   for each lock: the owner   the TTL in ms
-- Answers 1, GONE: there is no such sharer, THEIRS

return each(0, 2, 2, function(k, a)
	local lock, owner = KEYS[k], ARGV[a]
	if not string.find(get(lock) or '', '^shared ') then
		return missing(lock)
	end
	local now, last = sharers(lock)
	if not last or not call('ZSCORE', KEYS[k + 1], owner) then
		return {GONE, 0}
	end
	enter(lock, now, last, owner, ARGV[a + 1])
	return 1
end)
