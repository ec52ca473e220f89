-- Removes locks that have their owner's value, or are kept for it, and wakes those who wait for them.
--
-- KEYS  for each lock: the lock   the note that somebody waits
-- ARGV  1 the command that publishes   for each lock: the owner
-- Answers 1, GONE, THEIRS

local function mine(value, owner) return owns(value, owner) or owns(value, owner .. KEPT) end

if #KEYS == 2 then
	if not mine(get(KEYS[1]), ARGV[2]) then
		return {missing(KEYS[1])}
	elseif call('DEL', KEYS[1], KEYS[2]) == 2 then -- two only if somebody waits
		wake(KEYS[1], ARGV[1])
	end
	return {1}
end
local found, gone, awaited = call('MGET', unpack(KEYS)), {}, {}
local answers = each(0, 2, 1, function(k, a)
	if not mine(found[k], ARGV[a]) then
		return missing(KEYS[k])
	end
	gone[#gone + 1] = KEYS[k]
	if found[k + 1] then
		gone[#gone + 1] = KEYS[k + 1]
		awaited[#awaited + 1] = KEYS[k]
	end
	return 1
end)
if #gone > 0 then
	call('DEL', unpack(gone))
end
for _, lock in ipairs(awaited) do
	wake(lock, ARGV[1])
end
return answers
