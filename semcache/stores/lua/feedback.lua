-- Record one verdict, trim, count, decide.
-- KEYS: entry, downs, tomb, blocked (one slot)
-- ARGV: verdict, about, revision ('' = whatever is stored), principal, nonce, text digest, similarity,
--       raters that withdraw (N), window in us, keep in ms, most observations, most blocked texts
-- Returns {action, raters, now in us, scope, fingerprint}
--
-- A mark is "<about> <revision> <principal> <nonce> <text>", scored by server time. Distinct raters are the
-- lesser of distinct principals and distinct nonces, so that neither a thousand names on one lookup id nor
-- one name with a thousand lookup ids counts for more than one.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = string.format('%.0f', now)
local entry = redis.call('HMGET', KEYS[1], 'state', 'revision', 'scope', 'fingerprint', 'seen', 'blocked')
local scope, fingerprint = entry[3] or '', entry[4] or ''
if entry[1] ~= 'live' or (ARGV[3] ~= '' and entry[2] ~= ARGV[3]) then
  return {'none', 0, stamp, scope, fingerprint}
end
local verdict, about, revision = ARGV[1], ARGV[2], entry[2]
local principal, nonce, text = ARGV[4], ARGV[5], ARGV[6]
local needed, window = tonumber(ARGV[8]), tonumber(ARGV[9])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('(%.0f', now - window))

local function marks()
  local found = {}
  for _, mark in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    local a, r, p, n, t = string.match(mark, '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
    if r == revision then found[#found + 1] = {mark, a, p, n, t} else redis.call('ZREM', KEYS[2], mark) end
  end
  return found
end

local function distinct(found, wanted, only_text)
  local principals, nonces, people, servings = {}, {}, 0, 0
  for _, mark in ipairs(found) do
    if mark[2] == wanted and (only_text == nil or mark[5] == only_text) then
      if not principals[mark[3]] then principals[mark[3]] = true; people = people + 1 end
      if not nonces[mark[4]] then nonces[mark[4]] = true; servings = servings + 1 end
    end
  end
  return math.min(people, servings)
end

local function observe(sign)
  if about ~= 'match' or ARGV[7] == '' then return end
  local seen = {}
  for word in string.gmatch(entry[5] or '', '%S+') do seen[#seen + 1] = word end
  seen[#seen + 1] = ARGV[7] .. sign
  local first = math.max(1, #seen - tonumber(ARGV[11]) + 1)
  redis.call('HSET', KEYS[1], 'seen', table.concat(seen, ' ', first))
end

local function block(word)
  if redis.call('SCARD', KEYS[4]) >= tonumber(ARGV[12]) then return end
  redis.call('SADD', KEYS[4], word)
  redis.call('PEXPIRE', KEYS[4], ARGV[10])
  redis.call('HSET', KEYS[1], 'blocked', table.concat(redis.call('SMEMBERS', KEYS[4]), ' '))
end

local function withdraw(reason)
  redis.call('HSET', KEYS[3], 'time', stamp, 'reason', reason, 'revision', revision)
  redis.call('HINCRBY', KEYS[3], 'count', 1)
  redis.call('PEXPIRE', KEYS[3], ARGV[10])
  redis.call('HSET', KEYS[1], 'state', 'withdrawn')
  redis.call('PEXPIRE', KEYS[1], ARGV[10])
  redis.call('DEL', KEYS[2])
end

if verdict == '0' then return {'none', distinct(marks(), about), stamp, scope, fingerprint} end
if verdict == '1' then
  local removed = 0
  for _, mark in ipairs(marks()) do
    if mark[3] == principal then removed = removed + redis.call('ZREM', KEYS[2], mark[1]) end
  end
  if redis.call('SREM', KEYS[4], text .. '@' .. principal) == 1 then
    local left = redis.call('SMEMBERS', KEYS[4])
    if #left > 0 then redis.call('HSET', KEYS[1], 'blocked', table.concat(left, ' ')) else redis.call('HDEL', KEYS[1], 'blocked') end
  end
  observe('+')
  return {'recorded', distinct(marks(), about), stamp, scope, fingerprint}
end

redis.call('ZADD', KEYS[2], stamp, about .. ' ' .. revision .. ' ' .. principal .. ' ' .. nonce .. ' ' .. text)
redis.call('PEXPIRE', KEYS[2], string.format('%.0f', window / 1000))
local excess = redis.call('ZCARD', KEYS[2]) - 1000
if excess > 0 then redis.call('ZREMRANGEBYRANK', KEYS[2], 0, excess - 1) end
local found = marks()
if about == 'answer' then
  local raters = distinct(found, 'answer')
  if raters >= needed then
    withdraw('feedback')
    return {'withdrawn', raters, stamp, scope, fingerprint}
  end
  return {'recorded', raters, stamp, scope, fingerprint}
end
observe('-')
local raters = distinct(found, 'match', text)
block(raters >= needed and text or (text .. '@' .. principal))
local texts, complaints = {}, 0
for _, mark in ipairs(found) do
  if mark[2] == 'match' and not texts[mark[5]] then texts[mark[5]] = true; complaints = complaints + 1 end
end
if complaints >= needed and distinct(found, 'match') >= needed then
  withdraw('feedback:match')
  return {'withdrawn', distinct(found, 'match'), stamp, scope, fingerprint}
end
return {'blocked', raters, stamp, scope, fingerprint}
