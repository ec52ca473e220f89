-- Stands before the scripts that wake those who wait for a lock. Their first argument is the command
-- that publishes: PUBLISH, or SPUBLISH on a Cluster, where a plain PUBLISH would go to every node.

-- Publishing is worth its price only where somebody waits. pcall, since the lock
-- is gone already and that must be the answer: waiters without a message poll.
local function wake(key)
	redis.pcall(ARGV[1], key .. ':wake', '')
end

