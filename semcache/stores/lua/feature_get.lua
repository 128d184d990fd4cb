-- Read a feature. KEYS: feature
-- Returns {value or '', now in us}; a value that was invalidated counts as none
local time = redis.call('TIME')
local value = redis.call('GET', KEYS[1])
if not value or string.sub(value, 1, 1) == '!' then value = '' end
return {value, string.format('%.0f', time[1] * 1000000 + time[2])}
