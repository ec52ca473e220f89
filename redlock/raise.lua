-- Second phase of a fencing token: raises the counter, where the lock is still the caller's and
-- nobody has raised it as high.
--
-- KEYS  1 the lock   2 the fencing counter      ARGV  1 the owner value   2 the token
--       3 what the counter is to stand at: the token, or more
-- Answers 0 there is no lock   1 raised   2 the lock is another's   3 another has raised the
--       counter as high or higher

local found = redis.call('MGET', KEYS[1], KEYS[2])
if found[1] ~= ARGV[1] then
	return redis.call('EXISTS', KEYS[1]) * 2
end
local own = tonumber(ARGV[2])
if not admits(found[2], own, ARGV[1]) then
	return 3
end
raise(KEYS[2], found[2], own, tonumber(ARGV[3]), ARGV[1])
return 1
