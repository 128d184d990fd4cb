-- Note that an encoder is in use.
-- KEYS: encoders. ARGV: fingerprint
-- Returns {now in us, fingerprint, microsecond when it was last in use, …}
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
redis.call('ZADD', KEYS[1], now, ARGV[1])
local answer = {now}
for _, value in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')) do answer[#answer + 1] = value end
return answer
