-- Set an entry aside that can't be read, so that its place can be filled again.
-- KEYS: entry, aside (one slot). ARGV: keep in ms
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('RENAME', KEYS[1], KEYS[2])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
return 1
