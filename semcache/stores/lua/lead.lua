-- Take a lease, or hold it for longer. KEYS: lease. ARGV: holder, lease in ms
-- Returns 1 if it is this holder's
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
