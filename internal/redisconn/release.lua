-- Removes locks that have their owner's value, one or several of different
-- callers, and wakes those who wait for them.
--
-- KEYS  for n locks: n locks   n notes that somebody waits
--       and at the end, for one lock, the note that this value is void, if it is to be
-- ARGV  1 the command that publishes: PUBLISH, or SPUBLISH on a Cluster, where a
--         plain PUBLISH would go to every node
--       then for each lock the owner value
--       and at the end, for one lock with such a note, how long the value is to be void, in ms
-- Answers for one lock 0 there was no such key   1 removed   2 the key is another's,
-- and for several an array of these.
--
-- A server whose memory is full refuses writes but not removals: so the lock goes
-- first. Where the note is refused that is the answer, and the caller asks again.

local n = math.floor(#KEYS / 2)

-- MGET and not GET, which would fail on a key of another type.
if n == 1 then
	local answer = 1
	if not owns(call('MGET', KEYS[1])[1], ARGV[2]) then
		answer = call('EXISTS', KEYS[1]) * 2
	elseif call('DEL', KEYS[1], KEYS[2]) == 2 then -- two only if somebody waits
		wake(KEYS[1])
	end
	return KEYS[3] and void(KEYS[3], ARGV[3], answer) or answer
end

local found = call('MGET', unpack(KEYS))
local answers, removed, awaited = {}, {}, {}
for i = 1, n do
	answers[i] = 1
	if not owns(found[i], ARGV[i + 1]) then
		answers[i] = call('EXISTS', KEYS[i]) * 2
	else
		removed[#removed + 1] = KEYS[i]
		if found[n + i] then
			removed[#removed + 1] = KEYS[n + i]
			awaited[#awaited + 1] = KEYS[i]
		end
	end
end
if #removed > 0 then
	call('DEL', unpack(removed))
end
for _, key in ipairs(awaited) do
	wake(key)
end
return answers
