-- The fencing counter of a quorum: "token owner" under one key, the highest token that was raised
-- here and who raised it; or "token +OWN owner" if RaiseToken has raised it above OWN, which is that of the
-- owner's lease. This piece is put before the scripts that need it.

local function raiser(own, token, owner)
	return token > own and '+' .. string.format('%.0f', own) .. ' ' .. owner or owner
end

-- raisedBy is the token of owner's lease, if it has raised the counter.
local function raisedBy(counter, owner)
	local token, by = string.match(counter or '', '^(%d+) (.*)$')
	local own, whose = string.match(by or '', '^%+(%d+) (.*)$')
	return (by == owner or whose == owner) and tonumber(own or token)
end

-- Whether owner may have the token, which is its lease's own and not what RaiseToken makes of the counter: the
-- counter is lower, or this owner has raised it (R11), perhaps higher by now: a renewal that was sent before
-- RaiseToken may arrive after it.
local function admits(counter, token, owner)
	if not counter then
		return true
	end
	local n, by = string.match(counter, '^(%d+) (.*)$')
	n = tonumber(n) or 0
	return n < token or by == owner or by == raiser(token, n, owner)
end

-- Raises the counter, or lets it live longer where it stands at the floor or higher already: a full memory refuses to
-- write it again, but not that. It outlives its use by a day, and where the clock is behind the token, until that has
-- caught up as well. Within a minute of that it is left as it is, which saves a write at most renewals.
local function raise(key, counter, own, floor, owner)
	floor = math.max(floor, counter and tonumber(string.match(counter, '^%d+')) or 0)
	local value = string.format('%.0f', floor) .. ' ' .. raiser(own, floor, owner)
	local time = call('TIME')
	local ahead = math.max(0, floor - (time[1] * 1000000 + time[2]))
	local life = string.format('%.0f', ahead / 1000 + 86400000)
	if counter ~= value then
		call('SET', key, value, 'PX', life)
	elseif call('PTTL', key) < tonumber(life) - 60000 then
		call('PEXPIRE', key, life)
	end
	return value
end
