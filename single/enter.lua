-- Stands before the scripts with which a sharer comes or stays.

-- enter has owner among the sharers for ttl ms from now, and not less than it is (see prolong). A renewal
-- needs it also where memory is full: the first write of a script, here or in sharers, is one that needs
-- none, and those behind it are then not refused.
local function enter(lock, now, last, owner, ttl)
	local life = math.max(last, now + ttl) - now + 1000
	call('PEXPIRE', lock, life)
	call('ZADD', lock .. ':shared', 'GT', now + ttl, owner)
	call('PEXPIRE', lock .. ':shared', life)
end
