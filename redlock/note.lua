-- Notes under one key without expiry which run of the server gives votes from now
-- on, and which did before: "before now". A run that finds another's note has kept
-- the data of that one. Where memory is too full for the note, nothing is proven
-- later, and that is all.
--
-- KEYS  1 the note      ARGV  1 the run_id

-- MGET and not GET, which would fail on a key of another type, and which users need no right to.
local note = redis.call('MGET', KEYS[1])[1] or ''
local last = string.match(note, '(%S*)$')
if last ~= ARGV[1] then
	return redis.call('SET', KEYS[1], last .. ' ' .. ARGV[1])
end
return 'OK'
