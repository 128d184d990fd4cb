-- Give a lease back. KEYS: lease. ARGV: holder, ms for which whoever comes is told not to wait ('' = not told)
-- Returns 1 if it was this holder's
local lease = redis.call('GET', KEYS[1])
if not lease or string.match(lease, '^(%S+)') ~= ARGV[1] then return 0 end
if ARGV[2] == '' then return redis.call('DEL', KEYS[1]) end
redis.call('SET', KEYS[1], '-', 'PX', ARGV[2])
return 1
