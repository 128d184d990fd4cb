-- Hold a lease for longer. KEYS: lease. ARGV: holder, lease in ms
-- Returns 1 if it is still this holder's
local holder, rest = string.match(redis.call('GET', KEYS[1]) or '', '^(%S+) (%S+ %S+) %S+$')
if holder ~= ARGV[1] then return 0 end
local time = redis.call('TIME')
local ends = string.format('%.0f', time[1] * 1000000 + time[2] + tonumber(ARGV[2]) * 1000)
redis.call('SET', KEYS[1], table.concat({holder, rest, ends}, ' '), 'PX', ARGV[2])
return 1
