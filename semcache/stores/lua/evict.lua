-- Delete an entry that was chosen to make room, unless it was stored again since.
-- KEYS: entry. ARGV: when it was chosen, in us
-- Returns {scope, fingerprint}, '' where there was nothing to delete
if redis.call('EXISTS', KEYS[1]) == 0 then return {'', ''} end
local entry = redis.call('HMGET', KEYS[1], 'revision', 'scope', 'fingerprint')
if entry[1] and tonumber(entry[1]) > tonumber(ARGV[1]) then return {'', ''} end
redis.call('DEL', KEYS[1])
return {entry[2] or '', entry[3] or ''}
