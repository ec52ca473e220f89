-- Removes a lock if it has the value, and wakes those who wait for it.
--
-- KEYS  1 the lock   2 the note that somebody waits   3 the note that this value is void, if it is to be
-- ARGV  1 the owner value   2 the command that publishes: PUBLISH, or SPUBLISH on a Cluster, where a plain PUBLISH would go to every node
--       3 how long the value is to be void, in ms
-- Answers 0 there was no such key   1 removed   2 the key is another's

if KEYS[3] then
	-- The acquire that is taken back may still be under way (R7): when it comes, it finds this.
	redis.call('SET', KEYS[3], '1', 'PX', ARGV[3])
end

-- MGET and not GET, which would fail on a key of another type.
if redis.call('MGET', KEYS[1])[1] ~= ARGV[1] then
	return redis.call('EXISTS', KEYS[1]) * 2
end

-- Both at once: two were removed only if somebody waits, and only then is publishing worth its price.
if redis.call('DEL', KEYS[1], KEYS[2]) == 2 then
	-- pcall, since the lock is gone already and that must be the answer: who waits without a message polls.
	local channel = KEYS[1] .. ':wake'
	local sent = redis.pcall(ARGV[2], channel, '')
	if type(sent) == 'table' and sent.err and ARGV[2] ~= 'PUBLISH' then
		redis.pcall('PUBLISH', channel, '') -- before Redis 7.0 there is no SPUBLISH
	end
end
return 1
