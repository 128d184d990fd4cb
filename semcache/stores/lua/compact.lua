-- Fold the oldest generations into the floor, so that their number stays bounded.
-- KEYS: gens. ARGV: most generations to keep, time in us up to which they may be folded
-- Returns how many were folded. What a folded generation made stale stays stale: it lies under the floor.
local fields = redis.call('HGETALL', KEYS[1])
local raised = {}
for i = 1, #fields, 2 do
  if string.sub(fields[i], 1, 1) == '=' then raised[#raised + 1] = {fields[i], tonumber(fields[i + 1])} end
end
local limit, folded, floor = tonumber(ARGV[2]), 0, tonumber(redis.call('HGET', KEYS[1], '#floor') or '0')
table.sort(raised, function(a, b) return a[2] < b[2] end)
for i, pair in ipairs(raised) do
  if #raised - i + 1 <= tonumber(ARGV[1]) or pair[2] > limit then break end
  redis.call('HDEL', KEYS[1], pair[1])
  if pair[2] > floor then floor = pair[2] end
  folded = folded + 1
end
if folded > 0 then
  redis.call('HSET', KEYS[1], '#floor', string.format('%.0f', floor))
  redis.call('HINCRBY', KEYS[1], '#version', 1)
end
return folded
