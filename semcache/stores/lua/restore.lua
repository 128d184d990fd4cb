-- Bring a withdrawn entry back by an operator's word.
-- KEYS: entry, tomb, downs (one slot). ARGV: epoch, fence in us ('' = now)
-- Returns {1 if it is live now else 0, now in us, scope, fingerprint, expiry in ms since the epoch or ''}
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local entry = redis.call('HMGET', KEYS[1], 'state', 'ttl', 'scope', 'fingerprint', 'created', 'revision')
if not entry[1] then return {0, string.format('%.0f', now), '', '', ''} end
local fence = ARGV[2] == '' and string.format('%.0f', now) or ARGV[2]
local revision = now
if tonumber(entry[6]) >= revision then revision = tonumber(entry[6]) + 1 end
redis.call('HSET', KEYS[1], 'state', 'live', 'epoch', ARGV[1], 'fence', fence, 'created', string.format('%.0f', now),
  'revision', string.format('%.0f', revision))
redis.call('DEL', KEYS[2], KEYS[3])
local expiry = ''
if entry[2] ~= '' then
  redis.call('PEXPIRE', KEYS[1], entry[2])
  expiry = string.format('%.0f', now / 1000 + tonumber(entry[2]))
else
  redis.call('PERSIST', KEYS[1])
end
return {1, string.format('%.0f', now), entry[3], entry[4], expiry}
