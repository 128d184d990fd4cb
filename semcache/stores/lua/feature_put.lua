-- Store a feature, unless it was invalidated since it was looked up.
-- KEYS: feature. ARGV: value, ttl in ms ('' = for ever), fence in us ('' = now)
-- Returns 1 if it is stored
local value = redis.call('GET', KEYS[1])
if ARGV[3] ~= '' and value and string.sub(value, 1, 1) == '!' and tonumber(ARGV[3]) <= tonumber(string.sub(value, 2)) then
  return 0
end
if ARGV[2] == '' then redis.call('SET', KEYS[1], ARGV[1]) else redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
return 1
