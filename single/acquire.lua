-- Acquires locks, each for one who holds it alone: see ask.lua.
--
-- To take a free lock is one command in a script that is started once for many: what else there is to
-- know is read only where the lock is not free.

local function take(i)
	local lock, owner, ttl = KEYS[n + 1 + i], ARGV[2 * i], ARGV[2 * i + 1]
	if found[1 + i] then
		return {2, 0}
	end
	-- pcall: with full memory, held is held all the same.
	local taken = redis.pcall('SET', lock, digits .. ' ' .. owner, 'NX', 'PX', ttl)
	if taken and not taken.err then
		return granted(lock)
	end
	local value, note = call('MGET', lock)[1], waits(i)
	if not value then
		return taken or {3, call('PTTL', lock)}
	end
	if owns(value, owner) then
		-- The same request once more, its first reply lost (R11), has the token that was drawn then.
		prolong(lock, ttl)
		return {1, tonumber(string.sub(value, 1, 16))}
	end
	local turn, shared = string.match(value, '^turn (%x+)$'), string.match(value, '^shared (%d+)')
	local now, last
	if shared then
		now, last = sharers(lock)
	end
	if turn and (turn == name or not note) or shared and not last then
		-- The client whose turn it is takes it, and so does a client that does not wait. Where the last
		-- sharer is gone, so is the note of a writer, whosever it is.
		call('SET', lock, digits .. ' ' .. owner, 'PX', ttl)
		return granted(lock)
	elseif not shared then
		return held(lock, note)
	end
	if note then
		local mine = {'shared', shared, now + 1000, string.match(owner, '^[^:]*')}
		redis.pcall('SET', lock, table.concat(mine, ' '), 'KEEPTTL')
	end
	return {6, held(lock, note, last - now)[2]}
end

return several(n, take)
