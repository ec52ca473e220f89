-- Acquires locks, each together with others. Behind tokens.lua, sharers.lua and take.lua. MOST is how many can share
-- one.

return each(1, 3, 2, function(k, a)
	local lock, owner, ttl, note = KEYS[k + 1], ARGV[a], ARGV[a + 1], KEYS[k + 2]
	if voided[k] then
		return {VOID, 0}
	end
	local value, set = get(lock) or '', lock .. ':shared'
	local turn, shared, ends = string.match(value, '^turn (%x+)$'), string.match(value, '^shared (%d+) ?(%d*)')
	if value == '' and call('EXISTS', lock) == 1 then
		return {FOREIGN, call('PTTL', lock)}
	elseif value ~= '' and not shared and not (turn and (turn == me or note == lock)) then
		return held(lock, note)
	end
	local now, last = sharers(lock)
	if shared then
		if call('ZSCORE', set, owner) then
			-- The same request once more (R11): no newcomer, whoever waits.
			enter(lock, now, last, owner, ttl)
			return {AGAIN, tonumber(shared)}
		end
		-- A writer waits. (After a step back of the clock, its note is none.)
		local rest = (tonumber(ends) or 0) - now
		if rest > 0 and rest <= 1000 then
			return held(lock, note, rest)
		end
		if last then
			local many = call('ZCOUNT', set, now, '+inf')
			if many >= MOST then
				return {FULL, many}
			end
			enter(lock, now, last, owner, ttl)
			return tonumber(shared)
		end
	elseif last then
		call('DEL', set) -- of a lock whose key was removed by hand
	end
	-- The first one draws the token of all. SET comes first: full memory refuses it, and then nothing has been
	-- written. PEXPIRE comes next, with no effect: where the ACL refuses that, ZADD would leave a set that never
	-- expires. The lock's key alone is nobody's; it is removed, or ends by itself.
	call('SET', lock, 'shared ' .. digits, 'PX', ttl + 1000)
	local writes = {{'PEXPIRE', lock, ttl + 1000}, {'ZADD', set, now + ttl, owner}, {'PEXPIRE', set, ttl + 1000}}
	for _, write in ipairs(writes) do
		local written = pcall_(unpack(write))
		if type(written) == 'table' and written.err then
			pcall_('DEL', lock)
			return written
		end
	end
	return granted(lock)
end)
