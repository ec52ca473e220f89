-- Stands before the scripts that know of sharers. They stand in KEY:shared, a sorted set of owners, with KEPT where
-- they have released it, each with the time in ms at which it ends by the server's clock. The set is of use only
-- while the lock's key says "shared". Both outlive the last sharer by a second, so that the key lasts for as long as
-- a writer's note, and nothing but these times decides who is there.

-- sharers drops those whose time is over, and who leaves. It returns the time, that at which the last of the others
-- ends (nil: there are none), and 1 if there was one to leave.
local function sharers(lock, leaves)
	local time, set = call('TIME'), lock .. ':shared'
	local now = time[1] * 1000 + math.floor(time[2] / 1000)
	if call('EXISTS', set) == 0 then
		return now, nil, 0
	end
	call('ZREMRANGEBYSCORE', set, '-inf', '(' .. now)
	local left = leaves and math.min(1, call('ZREM', set, leaves, leaves .. KEPT))
	return now, tonumber(call('ZRANGE', set, -1, -1, 'WITHSCORES')[2]), left
end

-- enter has owner among the sharers for ttl ms from now, and not less than it is (see prolong). A renewal needs it
-- also where memory is full: the first write of a script is one that needs none, and those behind it are then not
-- refused.
local function enter(lock, now, last, owner, ttl)
	local life = math.max(last, now + ttl) - now + 1000
	call('PEXPIRE', lock, life)
	call('ZADD', lock .. ':shared', 'GT', now + ttl, owner)
	call('PEXPIRE', lock .. ':shared', life)
end
