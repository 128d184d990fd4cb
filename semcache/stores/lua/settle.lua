-- Say what became of a reservation: what was evicted is deleted, and the entry was stored or takes no room.
-- KEYS: rank, sizes, expiry, leaving, state, pending, freed (one slot)
-- ARGV: stamp of the reservation, entry ('' = say nothing of it), bytes it was stored with ('' = it wasn't), record it had
--       before ('' = none), 1 if another put of the entry may be under way ('' = no: it may be evicted now), then deleted entry, …
for i = 6, #ARGV do
  if redis.call('ZSCORE', KEYS[4], ARGV[i]) then
    local score = tonumber(redis.call('ZSCORE', KEYS[4], ARGV[i]))
    if score <= tonumber(ARGV[1]) then
      redis.call('ZREM', KEYS[4], ARGV[i])
      redis.call('HDEL', KEYS[7], ARGV[i])
    end
  end
end
if ARGV[2] == '' then return 0 end
local record = redis.call('HGET', KEYS[2], ARGV[2])
if not record then return 0 end
local size, weight, stamp, ends = string.match(record, '^(%S+) (%S+) (%S+) (%S+)$')
if stamp ~= ARGV[1] then -- somebody else reserved it since; which of the two came last to the entry isn't known here
  local more = (tonumber(ARGV[3]) or 0) - tonumber(size)
  if more > 0 then
    redis.call('HSET', KEYS[2], ARGV[2], ARGV[3] .. ' ' .. weight .. ' ' .. stamp .. ' ' .. ends)
    redis.call('HINCRBY', KEYS[5], 'bytes', string.format('%.0f', more))
  end
  return 0
end
local change = -tonumber(size)
if ARGV[5] == '' then redis.call('ZREM', KEYS[6], ARGV[2]) end
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[2], ARGV[2], ARGV[3] .. ' ' .. weight .. ' ' .. stamp .. ' ' .. ends)
  change = change + tonumber(ARGV[3])
elseif ARGV[4] == '' then
  redis.call('HDEL', KEYS[2], ARGV[2])
  redis.call('ZREM', KEYS[1], ARGV[2])
  redis.call('ZREM', KEYS[3], ARGV[2])
else
  local old, ends = string.match(ARGV[4], '^(%S+) %S+ %S+ (%S+)$')
  redis.call('HSET', KEYS[2], ARGV[2], ARGV[4])
  if ends == '-' then redis.call('ZREM', KEYS[3], ARGV[2]) else redis.call('ZADD', KEYS[3], ends, ARGV[2]) end
  change = change + tonumber(old)
end
redis.call('HINCRBY', KEYS[5], 'bytes', string.format('%.0f', change))
return 1
