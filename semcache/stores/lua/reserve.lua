-- Note uses of entries, and reserve room in a namespace's budget for one entry about to be stored.
-- KEYS: rank, sizes, expiry, past, leaving, state, pending, freed (one slot)
-- ARGV: eviction, half-life in turnovers, most entries ('' = no limit), most bytes ('' = no limit), most to evict now,
--       us after which what nobody confirmed (an eviction, a put) is taken for lost,
--       entry ('' = uses only), bytes, weight (log2), expiry in ms since the epoch ('' = never),
--       then entry, uses, …
-- Returns {outcome, stamp in us, record that was replaced or '', 1 if another put of the entry is under way else 0,
--          evicted entry, why, …}
--
-- The arithmetic is that of semcache/eviction.py. A record is "<bytes> <weight> <stamp> <expiry>". What was chosen
-- to go stays in `leaving`, its bytes in `freed`, until whoever asked has deleted it and says so: others can't have its
-- room before, and nothing is forgotten when somebody dies. What is reserved stays in `pending`, and can't be chosen,
-- until it is stored: else it would come after it had gone.
local eviction, half_life = ARGV[1], tonumber(ARGV[2])
local most, most_bytes, limit = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local kept = redis.call('HMGET', KEYS[6], 'age', 'bytes', 'seq', 'eviction', 'stamp')
local age, bytes, seq = tonumber(kept[1] or '0'), tonumber(kept[2] or '0'), tonumber(kept[3] or '0')
if kept[5] and tonumber(kept[5]) >= now then now = tonumber(kept[5]) + 1 end
local stamp = string.format('%.0f', now)
if kept[4] and kept[4] ~= eviction then -- another scale: what is there counts as older than whatever comes
  if eviction == 'lru' then seq = math.max(seq, math.ceil(age) + 64) else age = math.max(age, seq) + 64 end
  redis.call('DEL', KEYS[4])
end

local function log2(x) return math.log(x) / math.log(2) end
local function number(x) return string.format('%.17g', x) end
local function read(entry)
  local record = redis.call('HGET', KEYS[2], entry)
  if not record then return nil end
  local size, weight, when, ends = string.match(record, '^(%S+) (%S+) (%S+) (%S+)$')
  return {record = record, size = tonumber(size), weight = tonumber(weight)}
end
local function use(entry, count, uses, weight)
  seq = seq + 1
  if eviction == 'lru' then redis.call('ZADD', KEYS[1], seq, entry) return end
  local new = age + log2(uses)
  if count then
    local high, low = math.max(count, new), math.min(count, new)
    new = high + log2(1 + 2 ^ (low - high))
  end
  redis.call('ZADD', KEYS[1], number(new + weight), entry)
end

local lost = now - tonumber(ARGV[6])
local function awaited(entry)
  local since = redis.call('ZSCORE', KEYS[7], entry)
  return since and tonumber(since) > lost
end

local others, others_bytes = 0, 0 -- still there, and somebody else's to delete
local gone = {}
local function leave(entry, why, size)
  redis.call('ZADD', KEYS[5], stamp, entry)
  if size then redis.call('HSET', KEYS[8], entry, size) end
  gone[#gone + 1] = entry
  gone[#gone + 1] = why
end
local function drop(entry, score)
  local record = read(entry)
  redis.call('ZREM', KEYS[1], entry)
  redis.call('ZREM', KEYS[3], entry)
  redis.call('ZREM', KEYS[7], entry)
  redis.call('HDEL', KEYS[2], entry)
  if not record then return 0 end
  bytes = bytes - record.size
  if eviction ~= 'lru' and score then
    redis.call('ZADD', KEYS[4], number(tonumber(score) - record.weight), entry)
    local excess = redis.call('ZCARD', KEYS[4]) - math.max(redis.call('ZCARD', KEYS[1]), 1)
    if excess > 0 then redis.call('ZREMRANGEBYRANK', KEYS[4], 0, excess - 1) end
  end
  return record.size
end

for i = 11, #ARGV, 2 do
  local record = read(ARGV[i])
  if record then
    local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
    use(ARGV[i], score and tonumber(score) - record.weight, tonumber(ARGV[i + 1]), record.weight)
  end
end

local id, outcome, replaced, overlap = ARGV[7], 'reserved', '', 0
if id ~= '' then
  local size, weight = tonumber(ARGV[8]), tonumber(ARGV[9])
  for _, entry in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', lost, 'LIMIT', 0, 100)) do
    leave(entry, 'left')
  end
  for _, entry in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now / 1000, 'LIMIT', 0, limit)) do
    if not awaited(entry) then
      leave(entry, 'expired', drop(entry, redis.call('ZSCORE', KEYS[1], entry)))
    end
  end
  for _, entry in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', '(' .. stamp)) do
    others, others_bytes = others + 1, others_bytes + tonumber(redis.call('HGET', KEYS[8], entry) or '0')
  end
  local before = read(id)
  -- Until it is stored, what it replaces is still there.
  local more, growth = before and 0 or 1, before and math.max(size - before.size, 0) or size
  if most_bytes and size > most_bytes then
    outcome = 'too_large'
  else
    if not before then
      age = age + math.max(most and 1 / most or 0, most_bytes and size / most_bytes or 0) / half_life
    end
    local at, evicted = 0, 0
    while true do
      local why
      if most and redis.call('ZCARD', KEYS[1]) + others + more > most then why = 'entries' end
      if most_bytes and bytes + others_bytes + growth > most_bytes then why = 'bytes' end
      if not why then break end
      local lowest = redis.call('ZRANGE', KEYS[1], at, at, 'WITHSCORES')
      if evicted >= limit or not lowest[1] then outcome = 'policy' break end
      if lowest[1] == id or awaited(lowest[1]) then
        at = at + 1
      else
        leave(lowest[1], why, drop(lowest[1], lowest[2]))
        evicted = evicted + 1
      end
    end
    redis.call('HINCRBY', KEYS[6], 'evicted', evicted)
  end
  if outcome == 'reserved' then
    local count
    if before then
      replaced = before.record
      if awaited(id) then overlap = 1 end
      local score = redis.call('ZSCORE', KEYS[1], id)
      count = score and tonumber(score) - before.weight
    else
      count = tonumber(redis.call('ZSCORE', KEYS[4], id) or nil)
      redis.call('ZREM', KEYS[4], id)
    end
    bytes = bytes + growth
    local now_held = before and math.max(size, before.size) or size
    redis.call('ZADD', KEYS[7], stamp, id)
    redis.call('HSET', KEYS[2], id, string.format('%.0f', now_held) .. ' ' .. number(weight) .. ' ' .. stamp .. ' ' .. (ARGV[10] ~= '' and ARGV[10] or '-'))
    if ARGV[10] ~= '' then redis.call('ZADD', KEYS[3], ARGV[10], id) else redis.call('ZREM', KEYS[3], id) end
    use(id, count, 1, weight)
  end
end
redis.call('HSET', KEYS[6], 'age', number(age), 'bytes', string.format('%.0f', bytes), 'seq', string.format('%.0f', seq),
  'eviction', eviction, 'stamp', stamp)
return {outcome, stamp, replaced, overlap, unpack(gone)}
