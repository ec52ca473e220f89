-- What stands in a lock's key. This stands before the scripts that read it.
--
--   OWNER        has the lock: in package redlock
--   TOKEN OWNER  has the lock, with this token of 16 digits: in package single
--   turn CLIENT  nobody has it: it is kept for the next attempt of CLIENT, in package single
--
-- OWNER is the whole owner value that requests bring.

local call, KEYS, ARGV = redis.call, KEYS, ARGV

local function owns(value, owner)
	return value == owner or value and string.sub(value, 18) == owner
end

