-- Record one verdict, trim, count, decide.
-- KEYS: entry, downs, tomb, blocked, ups (one slot)
-- ARGV: verdict, about, revision ('' = whatever is stored), principal, nonce, text digest, similarity,
--       weight of the rater, raters that withdraw (N), window in us, keep in ms, most observations,
--       most blocked texts, trust that raises N by one (0 = none does), window of trust in us
-- Returns {action, raters, their weight, weight that withdraws, scope, fingerprint}
--
-- A -1 is "<about> <revision> <principal> <nonce> <text> <weight>", a +1 "<revision> <principal> <nonce> <weight>",
-- each scored by server time. Distinct raters are the lesser of distinct principals and distinct nonces, each with the
-- weight of its heaviest mark, so that neither a thousand names on one lookup id nor one name with a thousand lookup
-- ids counts for more than one.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = string.format('%.0f', now)
local entry = redis.call('HMGET', KEYS[1], 'state', 'revision', 'scope', 'fingerprint', 'seen', 'blocked')
local scope, fingerprint = entry[3] or '', entry[4] or ''
if entry[1] ~= 'live' or (ARGV[3] ~= '' and entry[2] ~= ARGV[3]) then
  return {'none', 0, '0', '0', scope, fingerprint}
end
local verdict, about, revision = ARGV[1], ARGV[2], entry[2]
local principal, nonce, text, weight = ARGV[4], ARGV[5], ARGV[6], ARGV[8]
local base, window = tonumber(ARGV[9]), tonumber(ARGV[10])
local MARKS, OWN, TRUSTED, EPSILON = 1000, 16, 256, 1e-9
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('(%.0f', now - window))
redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', string.format('(%.0f', now - tonumber(ARGV[15])))

-- Marks of this revision; those of another go.
local function downs()
  local found = {}
  for _, mark in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    local a, r, p, n, t, w = string.match(mark, '^(%S+) (%S+) (%S+) (%S+) (%S+) ?(%S*)$')
    if r == revision then
      found[#found + 1] = {mark = mark, about = a, principal = p, nonce = n, text = t, weight = tonumber(w) or 1}
    else
      redis.call('ZREM', KEYS[2], mark)
    end
  end
  return found
end

local function ups()
  local found = {}
  for _, mark in ipairs(redis.call('ZRANGE', KEYS[5], 0, -1)) do
    local r, p, n, w = string.match(mark, '^(%S+) (%S+) (%S+) (%S+)$')
    if r == revision then
      found[#found + 1] = {mark = mark, principal = p, nonce = n, weight = tonumber(w)}
    else
      redis.call('ZREM', KEYS[5], mark)
    end
  end
  return found
end

-- Forgets what this principal has said so far.
local function take_back()
  for _, mark in ipairs(downs()) do
    if mark.principal == principal then redis.call('ZREM', KEYS[2], mark.mark) end
  end
  for _, mark in ipairs(ups()) do
    if mark.principal == principal then redis.call('ZREM', KEYS[5], mark.mark) end
  end
  if redis.call('SREM', KEYS[4], text .. '@' .. principal) == 1 then
    local left = redis.call('SMEMBERS', KEYS[4])
    if #left > 0 then redis.call('HSET', KEYS[1], 'blocked', table.concat(left, ' ')) else redis.call('HDEL', KEYS[1], 'blocked') end
  end
end

-- How many distinct raters these are, and what they weigh.
local function distinct(found, wanted, only_text)
  local heaviest = {principal = {}, nonce = {}}
  for _, mark in ipairs(found) do
    if mark.weight > 0 and (wanted == nil or mark.about == wanted) and (only_text == nil or mark.text == only_text) then
      for what, table in pairs(heaviest) do
        table[mark[what]] = math.max(table[mark[what]] or 0, mark.weight)
      end
    end
  end
  local count, weighs = {}, {}
  for what, table in pairs(heaviest) do
    count[what], weighs[what] = 0, 0
    for _, one in pairs(table) do count[what], weighs[what] = count[what] + 1, weighs[what] + one end
  end
  return math.min(count.principal, count.nonce), math.min(weighs.principal, weighs.nonce)
end

local function observe(sign)
  if about ~= 'match' or ARGV[7] == '' then return end
  local seen = {}
  for word in string.gmatch(entry[5] or '', '%S+') do seen[#seen + 1] = word end
  seen[#seen + 1] = ARGV[7] .. sign
  local first = math.max(1, #seen - tonumber(ARGV[12]) + 1)
  redis.call('HSET', KEYS[1], 'seen', table.concat(seen, ' ', first))
end

local function block(word)
  if redis.call('SCARD', KEYS[4]) >= tonumber(ARGV[13]) then return end
  redis.call('SADD', KEYS[4], word)
  redis.call('PEXPIRE', KEYS[4], ARGV[11])
  redis.call('HSET', KEYS[1], 'blocked', table.concat(redis.call('SMEMBERS', KEYS[4]), ' '))
end

local function withdraw(reason)
  redis.call('HSET', KEYS[3], 'time', stamp, 'reason', reason, 'revision', revision)
  redis.call('HINCRBY', KEYS[3], 'count', 1)
  redis.call('PEXPIRE', KEYS[3], ARGV[11])
  redis.call('HSET', KEYS[1], 'state', 'withdrawn')
  redis.call('PEXPIRE', KEYS[1], ARGV[11])
  redis.call('DEL', KEYS[2], KEYS[5])
end

local function record(key, mark, span, most)
  redis.call('ZADD', KEYS[key], stamp, mark)
  redis.call('PEXPIRE', KEYS[key], string.format('%.0f', math.max(1, span / 1000)))
  local excess = redis.call('ZCARD', KEYS[key]) - most
  if excess > 0 then redis.call('ZREMRANGEBYRANK', KEYS[key], 0, excess - 1) end
end

-- Entries that many called right need more raters against them, at most twice as many.
local function needed()
  local step = tonumber(ARGV[14])
  if step == 0 then return base end
  local _, trust = distinct(ups())
  return base + math.min(base, math.floor(trust / step + EPSILON))
end

local function answer(action, raters, weighs)
  return {action, raters, string.format('%.6g', weighs), string.format('%.6g', needed()), scope, fingerprint}
end

if verdict ~= '-1' then
  take_back()
  if verdict == '1' then
    record(5, revision .. ' ' .. principal .. ' ' .. nonce .. ' ' .. weight, tonumber(ARGV[15]), TRUSTED)
    observe('+')
  end
  return answer(verdict == '1' and 'recorded' or 'none', distinct(downs(), about))
end

for _, mark in ipairs(ups()) do
  if mark.principal == principal then redis.call('ZREM', KEYS[5], mark.mark) end
end
-- One rater has one mark per text, her last, and OWN in all: she can't crowd out the others'.
local own, limit = 0, needed() - EPSILON
local before = downs()
for i = #before, 1, -1 do
  local mark = before[i]
  if mark.principal == principal then
    if (mark.about == about and mark.text == text) or own >= OWN - 1 then
      redis.call('ZREM', KEYS[2], mark.mark)
    else
      own = own + 1
    end
  end
end
record(2, table.concat({about, revision, principal, nonce, text, weight}, ' '), window, MARKS)
local found = downs()
if about == 'answer' then
  local raters, weighs = distinct(found, 'answer')
  local done = answer(weighs >= limit and 'withdrawn' or 'recorded', raters, weighs)
  if weighs >= limit then withdraw('feedback') end
  return done
end
observe('-')
local raters, weighs = distinct(found, 'match', text)
block(weighs >= base - EPSILON and text or (text .. '@' .. principal))
local texts, complaints = {}, 0
for _, mark in ipairs(found) do
  if mark.about == 'match' and mark.weight > 0 and not texts[mark.text] then texts[mark.text] = true; complaints = complaints + 1 end
end
local everybody, together = distinct(found, 'match')
if complaints >= base and together >= limit then
  local done = answer('withdrawn', everybody, together)
  withdraw('feedback:match')
  return done
end
return answer('blocked', raters, weighs)
