-- Acquires locks, each for one who holds it alone. Behind tokens.lua, sharers.lua and take.lua.
--
-- To take a free lock is one command in a script that is started once for many: what else there is to know is
-- read only where the lock is not free.

return each(1, 3, 2, function(k, a)
	local lock, owner, ttl, note = KEYS[k + 1], ARGV[a], ARGV[a + 1], KEYS[k + 2]
	if voided[k] then
		return {VOID, 0}
	end
	-- pcall: with full memory, held is held all the same.
	local taken = pcall_('SET', lock, digits .. ' ' .. owner, 'NX', 'PX', ttl)
	if taken and not taken.err then
		return granted(lock)
	end
	local value = get(lock)
	if not value then
		return taken or {FOREIGN, call('PTTL', lock)}
	end
	if owns(value, owner) then
		-- The same request once more, its first reply lost (R11), has the token that was drawn then.
		prolong(lock, ttl)
		return {AGAIN, tonumber(string.sub(value, 1, 16))}
	end
	local turn, shared = string.match(value, '^turn (%x+)$'), string.match(value, '^shared (%d+)')
	local now, last
	if shared then
		now, last = sharers(lock)
	end
	if turn and (turn == me or note == lock) or shared and not last then
		-- The client whose turn it is takes it, and so does a client that does not wait. Where the last
		-- sharer is gone, so is the note of a writer, whosever it is.
		call('SET', lock, digits .. ' ' .. owner, 'PX', ttl)
		return granted(lock)
	elseif not shared then
		return held(lock, note)
	end
	if note ~= lock then
		local mine = {'shared', shared, now + 1000, string.match(owner, '^[^:]*')}
		pcall_('SET', lock, table.concat(mine, ' '), 'KEEPTTL')
	end
	return {SHARERS, held(lock, note, last - now)[2]}
end)
