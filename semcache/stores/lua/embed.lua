-- Give an entry the embedding of one more encoder; the one that it was stored with stays.
-- KEYS: entry. ARGV: revision, fingerprint, embedding
-- Returns {1 if it was that revision else 0, expiry in ms since the epoch or ''}
local entry = redis.call('HMGET', KEYS[1], 'revision', 'fingerprint')
if entry[1] ~= ARGV[1] then return {0, ''} end
redis.call('HSET', KEYS[1], entry[2] == ARGV[2] and 'embedding' or 'embedding:' .. ARGV[2], ARGV[3])
local left = redis.call('PTTL', KEYS[1])
if left < 0 then return {1, ''} end
local time = redis.call('TIME')
return {1, string.format('%.0f', time[1] * 1000 + time[2] / 1000 + left)}
