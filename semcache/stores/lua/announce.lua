-- Append to the change log under the next sequence number; the stream's ids are <sequence>-0.
-- KEYS: log. ARGV: most records to keep, then field, value …
-- The field `at`, the server's time in us, tells a record from another of its number in a store that went back.
-- Returns the sequence number.
local last = 0
if redis.call('EXISTS', KEYS[1]) == 1 then
  local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
  if newest[1] then last = tonumber(string.match(newest[1][1], '^(%d+)')) end
end
local arguments = {'XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], string.format('%.0f-0', last + 1)}
local time = redis.call('TIME')
arguments[#arguments + 1] = 'at'
arguments[#arguments + 1] = string.format('%.0f', time[1] * 1000000 + time[2])
for i = 2, #ARGV do arguments[#arguments + 1] = ARGV[i] end
redis.call(unpack(arguments))
return last + 1
