-- Weigh an entry. KEYS: entry. Returns {bytes of its fields and values, ms left or -1}; 0 bytes where there is none
local bytes = 0
for _, part in ipairs(redis.call('HGETALL', KEYS[1])) do bytes = bytes + #part end
return {bytes, redis.call('PTTL', KEYS[1])}
