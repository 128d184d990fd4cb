-- Put entries on the regeneration queue, each at most once: one that is there already isn't added.
-- KEYS: refresh (stream), queued (hash: entry → "<ticket> <revision> <again>"; in the stream's slot)
-- ARGV: most tickets, then entry, why, revision ('' = whatever is stored), '1' if it was withdrawn just now …
-- Returns how many were added.
--
-- A worker may have the ticket in hand already, and be past looking at the entry. What went bad since is noted as
-- <again>, the revision to look at ('-' = whatever is stored), and gets a ticket of its own when this one is finished.
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('DEL', KEYS[2]) end
local free, added = tonumber(ARGV[1]) - redis.call('HLEN', KEYS[2]), 0
for i = 2, #ARGV, 4 do
  local id, why, revision, withdrawn = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3] == '1'
  local known = redis.call('HGET', KEYS[2], id)
  if known then
    local ticket, noted = string.match(known, '^(%S+) (%S*) ')
    if withdrawn or (revision ~= '' and revision ~= noted) then
      redis.call('HSET', KEYS[2], id, ticket .. ' ' .. noted .. ' ' .. (withdrawn and '-' or revision))
    end
  elseif added < free then
    local ticket = redis.call('XADD', KEYS[1], '*', 'entry', id, 'why', why, 'revision', revision)
    redis.call('HSET', KEYS[2], id, ticket .. ' ' .. revision .. ' ')
    added = added + 1
  end
end
return added
