-- Stands before every script. A script is for n locks, each with K keys and A arguments of its own, behind the
-- keys and the argument that all share. It answers with an array, one answer for each lock:
--
--   a number         done: the token, or 1
--   {code, number}   not done, or done before: see Code in script.go
--   {-1, text}       the error that this lock alone would have been answered with
--
-- What stands in a lock's key:
--
--   DIGITS OWNER  has the lock. The 16 digits are its token, or in package redlock the time of its request in µs
--   turn CLIENT   nobody has it: it is kept for the next attempt of CLIENT
--   shared DIGITS [MS WRITER]
--                 those in KEY:shared have it, if any, all with this token. New ones are kept out until MS, in ms of
--                 the server's clock, since WRITER waits: the part of an OWNER before the colon
--
-- The first ends in KEPT where nobody has the lock any more: its holder has released it, and it is kept until its
-- key ends (driver.Hold.Release). So do the OWNERs in KEY:shared. Every OWNER has a colon, and none has a newline.

local call, pcall_, KEYS, ARGV, KEPT = redis.call, redis.pcall, KEYS, ARGV, '\nkept'
local AGAIN, HELD, VOID, FOREIGN, GONE, THEIRS, TURN, SHARERS, FULL, OVERTAKEN = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10

-- each answers for all locks: one(k, a) for the lock whose keys and arguments begin there.
local function each(first, K, A, one)
	local answers, n = {}, (#KEYS - first) / K
	if n == 1 then -- as most calls are: its error is the script's
		local answer = one(first + 1, 2)
		return type(answer) == 'table' and answer.err and answer or {answer}
	end
	for i = 1, n do
		local ok, answer = pcall(one, first + 1 + K * (i - 1), 2 + A * (i - 1))
		if not ok then
			answer = {err = type(answer) == 'table' and answer.err or tostring(answer)}
		end
		answers[i] = type(answer) == 'table' and answer.err and {-1, answer.err} or answer
	end
	return answers
end

-- MGET and not GET, which would fail on a key of another type.
local function get(key) return call('MGET', key)[1] end

local function owns(value, owner) return value and string.sub(value, 18) == owner end

-- missing answers for a lock that is not the caller's.
local function missing(lock) return {call('EXISTS', lock) == 1 and THEIRS or GONE, 0} end

-- prolong has a key last for ttl ms from now, and not less than it does: a request for less (MinHold) may come after
-- one for more.
local function prolong(key, ttl)
	if call('PTTL', key) < tonumber(ttl) then
		call('PEXPIRE', key, ttl)
	end
	return 1
end

-- void has an acquire that is taken back find this note, should it still be under way (R7). It answers what is
-- given, or why the note could not be written.
local function void(key, ttl, answer)
	local noted = pcall_('SET', key, '1', 'NX', 'PX', ttl)
	if noted and noted.err then
		return noted
	elseif not noted then
		prolong(key, ttl)
	end
	return answer
end

-- wake tells all who wait: for whom the lock is kept, or nothing. pcall, since the lock is gone already, and waiters
-- without a message poll.
local function wake(lock, publish, whom) pcall_(publish, lock .. ':wake', whom or '') end
