-- Starts the TTL of locks anew that have their owner's value, one or several of
-- different callers.
--
-- KEYS  for n locks: n locks   n fencing counters
-- ARGV  1 how long a counter lives: "expire" or "keep"   then for each lock the owner value and the TTL in ms
-- Answers for one lock 0 there is no such key   1 renewed   2 the key is another's
--
-- Nothing is written that memory could be too full for.

local DAY = 86400000 -- ms
local n = (#ARGV - 1) / 2
local found = call('MGET', unpack(KEYS))
local now

local function renew(i)
	if found[i] ~= ARGV[2 * i] then
		return call('EXISTS', KEYS[i]) * 2
	end
	-- The counter lives for another day from here, and longer while the clock is
	-- behind it. (A lock with a TTL above a day can outlive it. Tokens rise all the
	-- same, since the clock is their floor.) Within a minute of the full day it is
	-- left as it is: that saves a write, and its copy to the replicas, at most
	-- renewals. A counter without expiry is kept for ever on purpose.
	local left = call('PTTL', KEYS[n + i])
	if left >= 0 and left < DAY - 60000 then
		if not now then
			local time = call('TIME')
			now = time[1] * 1000000 + time[2]
		end
		local ahead = (tonumber(found[n + i]) or 0) - now
		call('PEXPIRE', KEYS[n + i], string.format('%.0f', math.max(0, ahead) / 1000 + DAY))
	end
	return call('PEXPIRE', KEYS[i], ARGV[2 * i + 1])
end

return several(n, renew)
