-- Stands before the scripts that one call can run for several locks, each for
-- itself: one(i) is the answer for the i-th. For a single lock that is the answer
-- of the script; for several it is an array, in which {-1, text} is the error that
-- the lock alone would have been answered with.

local function several(n, one)
	if n == 1 then
		return one(1)
	end
	local answers = {}
	for i = 1, n do
		local ok, answer = pcall(one, i)
		if not ok then
			answer = {err = type(answer) == 'table' and answer.err or tostring(answer)}
		end
		answers[i] = type(answer) == 'table' and answer.err and {-1, answer.err} or answer
	end
	return answers
end

