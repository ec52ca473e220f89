-- Notes under one key without expiry which run of the server gives votes from now
-- on, and which did before: "before now". A run that finds another's note has kept
-- the data of that one. Where memory is too full for the note, nothing is proven
-- later, and that is all.
--
-- A run that is not durable leaves no note, and removes the one of a run before: its
-- own votes may be lost while that note is kept.
--
-- KEYS  1 the note      ARGV  1 the run_id   2 "durable" or "volatile"

-- MGET and not GET, which would fail on a key of another type, and which users need no right to.
local note = redis.call('MGET', KEYS[1])[1] or ''
local last = string.match(note, '(%S*)$')
if last ~= ARGV[1] and ARGV[2] == 'durable' then
	return redis.call('SET', KEYS[1], last .. ' ' .. ARGV[1])
end
if last ~= ARGV[1] and note ~= '' then
	redis.call('DEL', KEYS[1])
end
return 'OK'
