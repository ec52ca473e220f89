-- Says which of some commands the user may not run, with the keys and channels that are among their
-- arguments. It runs none of them.
--
-- ARGV  1 the commands, as JSON: [["set", "key", "value"], ["script|load", "text"], …]
-- Answers their numbers, from 0 on; or -1 if this server does not tell

if not redis.acl_check_cmd then
	return -1
end
local missing = {}
for i, command in ipairs(cjson.decode(ARGV[1])) do
	local of, sub = string.match(command[1], '^(.*)|(.*)$')
	if of then
		command[1] = sub
		table.insert(command, 1, of)
	end
	-- pcall: a command that was renamed is an error.
	local known, may = pcall(redis.acl_check_cmd, unpack(command))
	if not known or not may then
		missing[#missing + 1] = i - 1
	end
end
return missing
