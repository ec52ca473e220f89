-- Keeps locks on one node for another TTL, if they are there. With tokens it is their second phase, too: the counter
-- is raised where nobody else has raised it as high, and a node on which somebody has does not count. With CREATES a
-- lock that is not there is given again (a repair), unless its value is void. Behind counter.lua.
--
-- KEYS  for each lock: the lock   the counter of tokens (the lock again, where there are none)
--       with CREATES the note that its value is void
-- ARGV  1 nothing   for each lock: the owner   the TTL in ms   the token, or 0   what the counter is to stand at: the
--       token, or what RaiseToken has made of it   the time of the request, of 16 digits
-- Answers 1, GONE, THEIRS, OVERTAKEN, VOID

local K = CREATES and 3 or 2
local found, raised = call('MGET', unpack(KEYS)), {}

return each(0, K, 5, function(k, a)
	local lock, owner, token = KEYS[k], ARGV[a], tonumber(ARGV[a + 2])
	local counter = raised[KEYS[k + 1]] or found[k + 1] -- one before may have been for the same lock
	local there = owns(found[k], owner)
	if CREATES and found[k + 2] then
		return {VOID, 0}
	elseif not there and not (CREATES and call('EXISTS', lock) == 0) then
		return missing(lock)
	end
	-- The counter first: a repair that arrives late must not bring back a lock that another has had meanwhile.
	if token > 0 then
		if not admits(counter, token, owner) then
			return {OVERTAKEN, 0}
		end
		raised[KEYS[k + 1]] = raise(KEYS[k + 1], counter, token, tonumber(ARGV[a + 3]), owner)
	end
	if there then
		return prolong(lock, ARGV[a + 1])
	end
	call('SET', lock, ARGV[a + 4] .. ' ' .. owner, 'NX', 'PX', ARGV[a + 1])
	return 1
end)
