-- Store an entry, unless something newer or a withdrawal says no.
-- KEYS: entry, tomb, downs, blocked (one slot)
-- ARGV: epoch, fence in us ('' = now, as is one from the future: nothing may outlive what comes next), ttl in ms ('' = for ever), keep in ms ('' = for ever),
--       us after which it comes too late ('' = never), then field, value …
-- Returns {outcome, revision, now in us}
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local fence = ARGV[2] == '' and now or math.min(tonumber(ARGV[2]), now)
if ARGV[5] ~= '' and now > tonumber(ARGV[5]) then return {'deadline', '0', string.format('%.0f', now)} end
local tomb = redis.call('HGET', KEYS[2], 'time')
if tomb and fence <= tonumber(tomb) then return {'tombstone', '0', string.format('%.0f', now)} end
local old = redis.call('HMGET', KEYS[1], 'revision', 'epoch', 'fence', 'state', 'created')
if old[1] and old[4] == 'live' and tonumber(old[3]) > fence then -- of whichever epoch: it was looked up later
  return {'old_fence', old[1], string.format('%.0f', now)}
end
local revision = now
if old[1] and tonumber(old[1]) >= revision then revision = tonumber(old[1]) + 1 end
local stamp, rev = string.format('%.0f', now), string.format('%.0f', revision)
redis.call('DEL', KEYS[1], KEYS[3])
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'fence', string.format('%.0f', fence), 'revision', rev,
  'created', stamp, 'ttl', ARGV[3], 'state', 'live', 'announced', '0', unpack(ARGV, 6))
local blocked = redis.call('SMEMBERS', KEYS[4])
if #blocked > 0 then redis.call('HSET', KEYS[1], 'blocked', table.concat(blocked, ' ')) end
if ARGV[4] ~= '' then redis.call('PEXPIRE', KEYS[1], ARGV[4]) end
return {old[1] and 'replaced' or 'stored', rev, stamp}
