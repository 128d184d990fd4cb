-- Hold a lease for longer. KEYS: lease. ARGV: holder, lease in ms
-- Returns 1 if it is still this holder's
local lease = redis.call('GET', KEYS[1])
if not lease or string.match(lease, '^(%S+)') ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
