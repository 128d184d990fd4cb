-- Withdraw one entry that was withdrawn before, in case the store has forgotten it. What was looked up since stays.
-- KEYS: entry, tomb, downs (one slot), blocked if a text was refused for it instead. ARGV: reason, keep in ms, us when it was withdrawn
-- Returns {1 if the store had forgotten it else 0, now in us}
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if KEYS[4] and redis.call('EXISTS', KEYS[4]) == 1 then return {0, string.format('%.0f', now)} end
local at = math.min(now, tonumber(ARGV[3])) -- the clock may be another server's
local entry = redis.call('HMGET', KEYS[1], 'state', 'fence', 'revision')
local tomb = redis.call('HGET', KEYS[2], 'time')
local bad = entry[1] == 'live' and tonumber(entry[2]) <= at
if tomb and tonumber(tomb) >= at and not bad then return {0, string.format('%.0f', now)} end
if not tomb or tonumber(tomb) < at then redis.call('HSET', KEYS[2], 'time', string.format('%.0f', at)) end
redis.call('HSET', KEYS[2], 'reason', ARGV[1], 'revision', entry[3] or '')
redis.call('HINCRBY', KEYS[2], 'count', 1)
redis.call('PEXPIRE', KEYS[2], ARGV[2])
if bad then
  redis.call('DEL', KEYS[3])
  redis.call('HSET', KEYS[1], 'state', 'withdrawn')
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return {1, string.format('%.0f', now)}
