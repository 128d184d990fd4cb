-- Become the one that calls the model for an entry, unless somebody else is, or has stored an answer meanwhile.
-- KEYS: lease, entry, tomb (one slot)
-- ARGV: holder, lease in ms, epoch, fence in us ('' = now), an entry stored after this time in us is the answer
--       ('' = look for none), holder whose lease is taken over ('' = nobody's)
-- Returns {state, holder, us left, fence of the lease in us}: state is taken, held, stored or unshared
--
-- A lease is "<holder> <epoch> <fence> <end in us>". One that began before the entry was withdrawn, or under another
-- epoch, is nobody's: its answer can't be stored. "-" says that the last answer wasn't stored, so that there is nothing
-- to wait for.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if ARGV[5] ~= '' then
  local entry = redis.call('HMGET', KEYS[2], 'state', 'created')
  if entry[1] == 'live' and tonumber(entry[2]) > tonumber(ARGV[5]) then return {'stored', '', '0', '0'} end
end
local lease = redis.call('GET', KEYS[1])
if lease == '-' then return {'unshared', '', '0', '0'} end
if lease then
  local holder, epoch, fence, ends = string.match(lease, '^(%S+) (%S+) (%S+) (%S+)$')
  local tomb = redis.call('HGET', KEYS[3], 'time')
  if holder ~= ARGV[6] and epoch == ARGV[3] and not (tomb and tonumber(fence) <= tonumber(tomb)) then
    return {'held', holder, string.format('%.0f', tonumber(ends) - now), fence}
  end
end
local begun = ARGV[4] == '' and string.format('%.0f', now) or ARGV[4]
local ends = string.format('%.0f', now + tonumber(ARGV[2]) * 1000)
redis.call('SET', KEYS[1], table.concat({ARGV[1], ARGV[3], begun, ends}, ' '), 'PX', ARGV[2])
return {'taken', ARGV[1], string.format('%.0f', ARGV[2] * 1000), begun}
