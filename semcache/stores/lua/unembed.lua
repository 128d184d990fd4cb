-- Drop the embeddings of encoders that nobody uses any more. The name of the first one stays: it says that the
-- entry may match by meaning.
-- KEYS: entry. ARGV: fingerprint …
-- Returns how many were dropped
local own, dropped = redis.call('HGET', KEYS[1], 'fingerprint'), 0
for i = 1, #ARGV do
  dropped = dropped + redis.call('HDEL', KEYS[1], own == ARGV[i] and 'embedding' or 'embedding:' .. ARGV[i])
end
return dropped
