-- Remove elements of a vector set that have expired, unless they were added again meanwhile.
-- KEYS: vector set. ARGV: time in seconds, element …
-- Returns how many were removed.
local removed = 0
for i = 2, #ARGV do
  local attributes = redis.call('VGETATTR', KEYS[1], ARGV[i])
  if attributes then
    local expires = cjson.decode(attributes).e
    if expires and expires <= tonumber(ARGV[1]) then
      removed = removed + redis.call('VREM', KEYS[1], ARGV[i])
    end
  end
end
return removed
