-- Give an entry the embedding that wasn't ready when it was stored.
-- KEYS: entry. ARGV: revision, embedding, fingerprint
-- Returns 1 if it was that revision
if redis.call('HGET', KEYS[1], 'revision') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'embedding', ARGV[2], 'fingerprint', ARGV[3])
return 1
