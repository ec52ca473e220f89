-- The guard: it stops the script if the fencing token is lower than the mark, and raises the mark.
-- The last of KEYS is the key of the mark. The last of ARGV is the token; the one before it is how
-- long to keep the mark, in ms. All three are removed: the caller's own begin at 1.
do
	local mark, token, keep = table.remove(KEYS), table.remove(ARGV), table.remove(ARGV)
	-- Whether a is lower than b. Lua's numbers are exact only up to 2^53, and its < on strings depends
	-- on the server's locale. So the lengths are compared, and then ten digits at a time.
	local function lower(a, b)
		if #a ~= #b then
			return #a < #b
		end
		local x, y = string.sub(a, 1, 10), string.sub(b, 1, 10)
		if x == y then
			x, y = string.sub(a, 11), string.sub(b, 11)
		end
		return x ~= y and tonumber(x) < tonumber(y)
	end
	local function isToken(s)
		return type(s) == 'string' and string.find(s, '^[1-9][0-9]*$') and not lower('18446744073709551615', s)
	end
	if not mark or not isToken(token) or not string.find(keep or '', '^[1-9][0-9]*$') then
		return redis.error_reply('FENCEMISSING no fencing token: KEYS has to end with the mark, ' ..
			'ARGV with the time to keep it in ms and the token')
	end
	local seen = redis.call('GET', mark)
	if seen and not isToken(seen) then
		return redis.error_reply('FENCEMARK the value of ' .. mark .. ' is no mark: ' ..
			'find out what else writes there, and delete that key')
	end
	if seen and lower(token, seen) then
		return redis.error_reply('FENCESTALE ' .. seen .. ' is the mark ' .. mark ..
			', and the token ' .. token .. ' is lower')
	end
	-- The mark comes before the caller's writes. If this fails, nothing is written at all, and the reply
	-- names no place in a script, as it does if the caller's text fails: then no lower token is accepted
	-- after it.
	local moved = redis.pcall('SET', mark, token, 'PX', keep)
	if moved.err then
		return redis.error_reply((string.gsub(moved.err, '^%-', '')))
	end
end
