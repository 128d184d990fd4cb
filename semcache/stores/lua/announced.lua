-- Mark an entry as announced in the log.
-- KEYS: entry. ARGV: embedding ('' = none)
if redis.call('HGET', KEYS[1], 'announced') == '0' then redis.call('HSET', KEYS[1], 'announced', '1') end
return 1
