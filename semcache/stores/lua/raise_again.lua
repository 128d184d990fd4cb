-- Raise generations that were raised before, to what they were, in case the store has forgotten it.
-- KEYS: gens. ARGV: a new epoch, then name, us when it was raised …
-- Returns the names that the store had forgotten
redis.call('HSETNX', KEYS[1], '#epoch', ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local floor = tonumber(redis.call('HGET', KEYS[1], '#floor') or 0)
local forgotten = {}
for i = 2, #ARGV, 2 do
  local at = math.min(now, tonumber(ARGV[i + 1])) -- the clock may be another server's
  local old = redis.call('HGET', KEYS[1], '=' .. ARGV[i])
  if math.max(floor, tonumber(old or 0)) < at then
    redis.call('HSET', KEYS[1], '=' .. ARGV[i], string.format('%.0f', at))
    forgotten[#forgotten + 1] = ARGV[i]
  end
end
if #forgotten > 0 then redis.call('HINCRBY', KEYS[1], '#version', 1) end
return forgotten
