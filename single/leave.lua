-- Removes sharers, one or several: release.lua for those who share a lock. It also removes the note of
-- a writer that waits.
--
-- KEYS  for n locks: n locks   n notes that somebody waits   n notes that this value is void
--         n sets of sharers, for a Cluster that moves a slot: see stay.lua
-- ARGV  1 the command that publishes   then for each lock the owner value, and how long it is to be
--         void, in ms; 0: not at all
-- Answers for one lock 0 there is no such sharer   1 removed   2 another holds the lock

local n = #KEYS / 4

-- left removes what owner has of the lock, which is shared with this token, and has a note of this
-- writer up to that time.
local function left(lock, waiting, owner, token, ends, writer)
	local now, last, removed = sharers(lock, owner)
	local opens = writer ~= '' and writer == string.match(owner, '^[^:]*')
	local rest = not opens and (tonumber(ends) or 0) - now or 0
	if last then
		if opens then
			call('SET', lock, 'shared ' .. token, 'KEEPTTL')
		end
		call('PEXPIRE', lock, last - now + 1000)
		call('PEXPIRE', lock .. ':shared', last - now + 1000)
	elseif rest > 0 and rest <= 1000 then
		call('PEXPIRE', lock, rest) -- the lock is the next writer's
	else
		call('DEL', lock)
	end
	if (opens or not last) and call('DEL', waiting) == 1 then
		wake(lock)
	end
	return removed
end

return several(n, function(i)
	local lock, owner, ms = KEYS[i], ARGV[2 * i], ARGV[2 * i + 1]
	local value = call('MGET', lock)[1] or ''
	local token, ends, writer = string.match(value, '^shared (%d+) ?(%d*) ?(.*)$')
	local answer = token and left(lock, KEYS[n + i], owner, token, ends, writer) or call('EXISTS', lock) * 2
	return ms ~= '0' and void(KEYS[2 * n + i], ms, answer) or answer
end)
