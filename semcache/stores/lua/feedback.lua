-- Record one verdict, trim, count, decide.
-- KEYS: entry, downs, tomb, blocked, ups (one slot), where all slots are one server's the principal's limit and the log too
-- ARGV: verdict, about, revision ('' = whatever is stored), principal, nonce, text digest, similarity, weight of the rater,
--       rules, entry id
-- The rules are nine doubles in one, which is read faster than nine arguments: raters that withdraw (N), window in us, keep in
-- ms, most observations, trust that raises N by one (0 = none does), window of trust in us, life of the limit in ms, most
-- blocked texts, most records of the log.
-- Returns "<action> <raters> <their weight> <weight that withdraws> <verdicts in this stretch of the limit, 0 where that
-- isn't counted here>": one string is read faster than five
--
-- A -1 is "<about> <revision> <principal> <nonce> <text> <weight>", a +1 "<revision> <principal> <nonce> <weight>",
-- each scored by server time. Distinct raters are the lesser of distinct principals and distinct nonces, each with the
-- weight of its heaviest mark, so that neither a thousand names on one lookup id nor one name with a thousand lookup
-- ids counts for more than one.
local base, window, keep, most_seen, step, trust_window, limit_life, most_blocked, most_told = struct.unpack('<ddddddddd', ARGV[9])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local spoken = 0
if KEYS[6] then
  spoken = redis.call('INCR', KEYS[6])
  if spoken == 1 then redis.call('PEXPIRE', KEYS[6], limit_life) end
end
local entry = redis.call('HMGET', KEYS[1], 'state', 'revision', 'blocked')
if entry[1] ~= 'live' or (ARGV[3] ~= '' and entry[2] ~= ARGV[3]) then return 'none 0 0 0 ' .. spoken end
local verdict, about, revision = ARGV[1], ARGV[2], entry[2]
local principal, nonce, text, weight = ARGV[4], ARGV[5], ARGV[6], ARGV[8]
local MARKS, OWN, TRUSTED, EPSILON = math.min(8000, math.max(256, 8 * base)), 16, 256, 1e-9

-- Marks of this revision in their window, oldest first; those of another revision go.
local function read(key, span, parse)
  local found, marks = {}, redis.call('ZRANGE', KEYS[key], now - span, '+inf', 'BYSCORE')
  for i = 1, #marks do
    local one = parse(marks[i])
    if one.revision == revision then
      one.mark, one.weight = marks[i], tonumber(one.weight) or 1
      found[#found + 1] = one
    else
      redis.call('ZREM', KEYS[key], marks[i])
    end
  end
  return found
end

local downs = read(2, window, function(mark)
  local a, r, p, n, t, w = string.match(mark, '^([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ?([^ ]*)$')
  return {about = a, revision = r, principal = p, nonce = n, text = t, weight = w}
end)
local ups = read(5, trust_window, function(mark)
  local r, p, n, w = string.match(mark, '^([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+)$')
  return {revision = r, principal = p, nonce = n, weight = w}
end)

-- Removes this principal's marks that aren't to be kept.
local function drop(key, marks, keep_it)
  for i = #marks, 1, -1 do
    if marks[i].principal == principal and not (keep_it and keep_it(marks[i])) then
      redis.call('ZREM', KEYS[key], marks[i].mark)
      table.remove(marks, i)
    end
  end
end

-- Records a mark in place of this principal's that aren't to be kept; the oldest of too many go. The new one is added
-- first: a set that was emptied would be made anew. Once in a sixteenth of the window the set's life is renewed, and
-- those past the window go; until then they aren't read. So it is, too, where the window was longer before.
local function record(key, marks, word, span, most, keep_it)
  redis.call('ZADD', KEYS[key], now, word)
  local left, life = redis.call('PTTL', KEYS[key]), math.ceil(span / 1000 * 17 / 16) + 1
  if left < span / 1000 or left > life then
    redis.call('PEXPIRE', KEYS[key], life)
    redis.call('ZREMRANGEBYSCORE', KEYS[key], '-inf', string.format('(%.0f', now - span))
  end
  for i = #marks, 1, -1 do
    if marks[i].mark == word then table.remove(marks, i) end
  end
  drop(key, marks, keep_it)
  marks[#marks + 1] = {
    mark = word, about = about, principal = principal, nonce = nonce, text = text, weight = tonumber(weight)
  }
  while #marks > most do
    redis.call('ZREM', KEYS[key], marks[1].mark)
    table.remove(marks, 1)
  end
end

-- How many distinct raters these are, and what they weigh.
local function distinct(marks, wanted, only_text)
  local principals, nonces = {}, {}
  local people, servings, weighs, serve = 0, 0, 0, 0
  for i = 1, #marks do
    local mark = marks[i]
    local w = mark.weight
    if w > 0 and (wanted == nil or mark.about == wanted) and (only_text == nil or mark.text == only_text) then
      local p, n = principals[mark.principal], nonces[mark.nonce]
      if p == nil then people = people + 1 end
      if n == nil then servings = servings + 1 end
      if w > (p or 0) then weighs = weighs + w - (p or 0); principals[mark.principal] = w end
      if w > (n or 0) then serve = serve + w - (n or 0); nonces[mark.nonce] = w end
    end
  end
  return math.min(people, servings), math.min(weighs, serve)
end

local function observe(sign)
  if about ~= 'match' or ARGV[7] == '' then return end
  local seen = {}
  for word in string.gmatch(redis.call('HGET', KEYS[1], 'seen') or '', '%S+') do seen[#seen + 1] = word end
  seen[#seen + 1] = ARGV[7] .. sign
  local first = math.max(1, #seen - most_seen + 1)
  redis.call('HSET', KEYS[1], 'seen', table.concat(seen, ' ', first))
end

local function block(word)
  if redis.call('SCARD', KEYS[4]) >= most_blocked then return end
  redis.call('SADD', KEYS[4], word)
  redis.call('PEXPIRE', KEYS[4], keep)
  redis.call('HSET', KEYS[1], 'blocked', table.concat(redis.call('SMEMBERS', KEYS[4]), ' '))
  if not KEYS[7] then return end
  -- Told under the next sequence number, as by announce.lua.
  local newest = redis.call('XREVRANGE', KEYS[7], '+', '-', 'COUNT', 1)
  local last = newest[1] and tonumber(string.match(newest[1][1], '^(%d+)')) or 0
  redis.call('XADD', KEYS[7], 'MAXLEN', '~', most_told, string.format('%.0f-0', last + 1),
    'at', string.format('%.0f', now), 'op', 'block', 'entry', ARGV[10])
end

local function withdraw(reason)
  redis.call('HSET', KEYS[3], 'time', string.format('%.0f', now), 'reason', reason, 'revision', revision)
  redis.call('HINCRBY', KEYS[3], 'count', 1)
  redis.call('PEXPIRE', KEYS[3], keep)
  redis.call('HSET', KEYS[1], 'state', 'withdrawn')
  redis.call('PEXPIRE', KEYS[1], keep)
  redis.call('DEL', KEYS[2], KEYS[5])
end

-- Entries that many called right need more raters against them, at most twice as many.
local function needed()
  if step == 0 or #ups == 0 then return base end
  local _, trust = distinct(ups)
  return base + math.min(base, math.floor(trust / step + EPSILON))
end

local function answer(action, raters, weighs, limit)
  return string.format('%s %d %.6g %.6g %d', action, raters, weighs, limit, spoken)
end

if verdict ~= '-1' then
  drop(2, downs)
  -- The entry tells all that is blocked for it.
  if entry[3] and redis.call('SREM', KEYS[4], text .. '@' .. principal) == 1 then
    local left = redis.call('SMEMBERS', KEYS[4])
    if #left > 0 then redis.call('HSET', KEYS[1], 'blocked', table.concat(left, ' ')) else redis.call('HDEL', KEYS[1], 'blocked') end
  end
  if verdict == '1' then
    record(5, ups, table.concat({revision, principal, nonce, weight}, ' '), trust_window, TRUSTED)
    observe('+')
  else
    drop(5, ups)
  end
  local raters, weighs = distinct(downs, about)
  return answer(verdict == '1' and 'recorded' or 'none', raters, weighs, needed())
end

-- One rater has one mark per text, her last, and OWN in all: she can't crowd out the others'.
drop(5, ups)
local own = 0
record(2, downs, table.concat({about, revision, principal, nonce, text, weight}, ' '), window, MARKS, function(mark)
  if (mark.about == about and mark.text == text) or own >= OWN - 1 then return false end
  own = own + 1
  return true
end)
local limit = needed()
local enough = limit - EPSILON
if about == 'answer' then
  local raters, weighs = distinct(downs, 'answer')
  if weighs >= enough then withdraw('feedback') end
  return answer(weighs >= enough and 'withdrawn' or 'recorded', raters, weighs, limit)
end
observe('-')
local raters, weighs = distinct(downs, 'match', text)
block(weighs >= base - EPSILON and text or (text .. '@' .. principal))
local texts, complaints = {}, 0
for _, mark in ipairs(downs) do
  if mark.about == 'match' and mark.weight > 0 and not texts[mark.text] then texts[mark.text] = true; complaints = complaints + 1 end
end
local everybody, together = distinct(downs, 'match')
if complaints >= base and together >= enough then
  withdraw('feedback:match')
  return answer('withdrawn', everybody, together, limit)
end
return answer('blocked', raters, weighs, limit)
