-- Starts the TTL of locks anew on one node of a quorum, one or several of different holders, if
-- they are there. With tokens it is the second phase of the token once more, so that a node that
-- came to the lock late counts only if nobody has held the lock since.
--
-- KEYS  for n locks: n locks   n fencing counters, read if there are tokens
-- ARGV  1 "none", or anything else if there are tokens   then for each lock the owner value, the
--       TTL in ms, the token, and what its counter is to stand at
-- Answers for one lock 0 there is no lock   1 renewed   2 the lock is another's   3 another has
--       raised the counter as high or higher

local n = (#ARGV - 1) / 4
local tokens = ARGV[1] ~= 'none'
local found = call('MGET', unpack(KEYS, 1, tokens and 2 * n or n))

return several(n, function(i)
	local key, owner, counter = KEYS[n + i], ARGV[4 * i - 2], found[n + i]
	if found[i] ~= owner then
		return call('EXISTS', KEYS[i]) * 2
	end
	if tokens then
		local own, floor = tonumber(ARGV[4 * i]), tonumber(ARGV[4 * i + 1])
		if not admits(counter, own, owner) then
			return 3
		end
		-- Within a minute of the full day it is left as it is, which saves a write at most renewals.
		local left = counter and call('PTTL', key) or 0
		if not counter or tonumber(string.match(counter, '^%d+')) < floor or (left >= 0 and left < 86340000) then
			raise(key, counter, own, floor, owner)
		end
	end
	return prolong(KEYS[i], ARGV[4 * i - 1])
end)
