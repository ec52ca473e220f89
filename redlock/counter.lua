-- The fencing counter of a quorum: "token owner" under one key, the highest token that was raised
-- here and who raised it; or "token +OWN owner" if RaiseToken has raised it above OWN, which is that of the
-- owner's lease. This piece is put before the scripts that need it.

local function raiser(own, token, owner)
	return token > own and '+' .. string.format('%.0f', own) .. ' ' .. owner or owner
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

-- Raises the counter, or lets it live longer where it stands at the token or higher
-- already: a full memory refuses to write it again, but not that. It outlives its
-- use by a day, and where the clock is behind the token, until that has caught up
-- as well.
local function raise(key, counter, own, token, owner)
	token = math.max(token, counter and tonumber(string.match(counter, '^%d+')) or 0)
	local value = string.format('%.0f', token) .. ' ' .. raiser(own, token, owner)
	local time = redis.call('TIME')
	local ahead = math.max(0, token - (time[1] * 1000000 + time[2]))
	local life = string.format('%.0f', ahead / 1000 + 86400000)
	if counter == value then
		redis.call('PEXPIRE', key, life)
	else
		redis.call('SET', key, value, 'PX', life)
	end
end

