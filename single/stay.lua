-- Starts the time of sharers anew, one or several: renew.lua for those who share a lock.
--
-- KEYS  for n locks: n locks   n sets of sharers, so that a Cluster that moves a slot, key by key, does
--         not run this where the one is and the other is not yet
-- ARGV  1 nothing   then for each lock the owner value and the TTL in ms
-- Answers for one lock 0 there is no such sharer   1 renewed   2 another holds the lock

return several(#KEYS / 2, function(i)
	local lock, owner = KEYS[i], ARGV[2 * i]
	if not string.find(call('MGET', lock)[1] or '', '^shared ') then
		return call('EXISTS', lock) * 2
	end
	local now, last = sharers(lock)
	if not last or not call('ZSCORE', lock .. ':shared', owner) then
		return 0
	end
	enter(lock, now, last, owner, ARGV[2 * i + 1])
	return 1
end)
