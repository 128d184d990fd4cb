-- Invalidate a feature, and remember when for as long as somebody may still be loading what it was.
-- KEYS: feature. ARGV: ms to remember it
local time = redis.call('TIME')
redis.call('SET', KEYS[1], '!' .. string.format('%.0f', time[1] * 1000000 + time[2]), 'PX', ARGV[1])
return 1
