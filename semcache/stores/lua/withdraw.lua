-- Withdraw one entry by name and leave a tombstone.
-- KEYS: entry, tomb, downs (one slot). ARGV: reason, keep in ms
-- Returns {1 if a live entry was withdrawn else 0, now in us, scope, fingerprint}
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
local entry = redis.call('HMGET', KEYS[1], 'state', 'revision', 'scope', 'fingerprint')
redis.call('HSET', KEYS[2], 'time', now, 'reason', ARGV[1], 'revision', entry[2] or '')
redis.call('HINCRBY', KEYS[2], 'count', 1)
redis.call('PEXPIRE', KEYS[2], ARGV[2])
redis.call('DEL', KEYS[3])
local was_live = 0
if entry[1] == 'live' then
  was_live = 1
  redis.call('HSET', KEYS[1], 'state', 'withdrawn')
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return {was_live, now, entry[3] or '', entry[4] or ''}
