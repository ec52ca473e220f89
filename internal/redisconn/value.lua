-- What stands in a lock's key. This stands before the scripts that read it.
--
--   OWNER        has the lock: in package redlock
--   TOKEN OWNER  has the lock, with this token of 16 digits: in package single
--   turn CLIENT  nobody has it: it is kept for the next attempt of CLIENT, in package single
--   shared TOKEN [MS WRITER]
--                those in KEY:shared have it, if any: in package single. New ones are kept out until MS, in
--                ms of the server's clock, since WRITER waits: the part of an OWNER before the colon
--
-- OWNER is the whole owner value that requests bring. In package single it has a colon, and what is no
-- TOKEN OWNER has none: so none is taken for the other, whatever an OWNER says.

local call, KEYS, ARGV = redis.call, KEYS, ARGV

local function owns(value, owner)
	return value == owner or value and string.sub(value, 18) == owner
end

-- prolong has a key last for ttl ms from now, and not less than it does: a request for less (MinHold) may
-- come after one for more. It answers 1, since the key is there.
local function prolong(key, ttl)
	if call('PTTL', key) < tonumber(ttl) then
		call('PEXPIRE', key, ttl)
	end
	return 1
end

-- void has an acquire with a value that is taken back find this note, should it still be under way (R7), and
-- answers what is given, or why the note could not be written.
local function void(key, ttl, answer)
	local noted = redis.pcall('SET', key, '1', 'NX', 'PX', ttl)
	return noted and noted.err and noted or prolong(key, ttl) and answer
end

