-- Append to the change log under the next sequence number; the stream's ids are <sequence>-0.
-- KEYS: log. ARGV: most records to keep, then field, value …
-- Returns the sequence number.
local last = 0
if redis.call('EXISTS', KEYS[1]) == 1 then
  local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
  if newest[1] then last = tonumber(string.match(newest[1][1], '^(%d+)')) end
end
local arguments = {'XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], string.format('%.0f-0', last + 1)}
for i = 2, #ARGV do arguments[#arguments + 1] = ARGV[i] end
redis.call(unpack(arguments))
return last + 1
