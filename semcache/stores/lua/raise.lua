-- Raise generations: what was fenced up to now, or up to some seconds ago, is stale. Never lowers one.
-- KEYS: gens. ARGV: a new epoch, microseconds before now, then names …
-- Returns {epoch, now in us, withdrawals counted}
redis.call('HSETNX', KEYS[1], '#epoch', ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local value = now - tonumber(ARGV[2])
for i = 3, #ARGV do
  local old = redis.call('HGET', KEYS[1], '=' .. ARGV[i])
  if not old or tonumber(old) < value then redis.call('HSET', KEYS[1], '=' .. ARGV[i], string.format('%.0f', value)) end
end
redis.call('HINCRBY', KEYS[1], '#version', 1)
local count = redis.call('HINCRBY', KEYS[1], '#withdrawn', 1)
return {redis.call('HGET', KEYS[1], '#epoch'), string.format('%.0f', now), count}
