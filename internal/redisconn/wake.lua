-- Stands before the scripts that wake those who wait for a lock. Their first argument is the command
-- that publishes: PUBLISH, or SPUBLISH on a Cluster, where a plain PUBLISH would go to every node.

-- Publishing is worth its price only where somebody waits. pcall, since the lock
-- is gone already and that must be the answer: waiters without a message poll.
local function wake(key)
	local sent = redis.pcall(ARGV[1], key .. ':wake', '')
	if type(sent) == 'table' and sent.err and ARGV[1] ~= 'PUBLISH' then
		redis.pcall('PUBLISH', key .. ':wake', '') -- before Redis 7.0 there is no SPUBLISH
	end
end

