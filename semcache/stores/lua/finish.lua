-- Take finished work off the regeneration queue; an entry that went bad again meanwhile gets a new ticket.
-- KEYS: refresh (stream), queued (hash). ARGV: consumer group, then ticket, entry …
-- Returns how many were queued again.
local again = 0
for i = 2, #ARGV, 2 do
  local ticket, id = ARGV[i], ARGV[i + 1]
  redis.call('XACK', KEYS[1], ARGV[1], ticket)
  redis.call('XDEL', KEYS[1], ticket)
  local held, _, revision = string.match(redis.call('HGET', KEYS[2], id) or '', '^(%S+) (%S*) (%S*)$')
  if held == ticket then
    redis.call('HDEL', KEYS[2], id)
    if revision ~= '' then
      if revision == '-' then revision = '' end
      local new = redis.call('XADD', KEYS[1], '*', 'entry', id, 'why', 'again', 'revision', revision)
      redis.call('HSET', KEYS[2], id, new .. ' ' .. revision .. ' ')
      again = again + 1
    end
  end
end
return again
