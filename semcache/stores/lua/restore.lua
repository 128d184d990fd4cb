-- Bring a withdrawn entry back by an operator's word. It keeps its fence and its age: what was invalidated since it
-- was looked up, and its ttl, go on counting.
-- KEYS: entry, tomb, downs (one slot)
-- Returns {1 if it is live now else 0, scope, fingerprint, expiry in ms since the epoch or ''}
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local entry = redis.call('HMGET', KEYS[1], 'state', 'ttl', 'scope', 'fingerprint', 'created', 'revision')
if entry[1] ~= 'withdrawn' then return {0, '', '', ''} end
local expiry = ''
if entry[2] ~= '' then
  expiry = string.format('%.0f', tonumber(entry[5]) / 1000 + tonumber(entry[2]))
  if tonumber(expiry) <= now / 1000 then return {0, '', '', ''} end
end
local revision = now
if tonumber(entry[6]) >= revision then revision = tonumber(entry[6]) + 1 end
redis.call('HSET', KEYS[1], 'state', 'live', 'revision', string.format('%.0f', revision))
redis.call('DEL', KEYS[2], KEYS[3])
if expiry == '' then redis.call('PERSIST', KEYS[1]) else redis.call('PEXPIRE', KEYS[1], string.format('%.0f', tonumber(expiry) - now / 1000)) end
return {1, entry[3], entry[4], expiry}
