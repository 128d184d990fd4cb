-- Read generations and the clock of the node that holds them; give the store an epoch if it has none.
-- KEYS: gens. ARGV: a new epoch, then tags …
-- Returns {seconds, microseconds, epoch, version, floor, withdrawals, generation …}
redis.call('HSETNX', KEYS[1], '#epoch', ARGV[1])
local time = redis.call('TIME')
local answer = {time[1], time[2]}
local names = {'#epoch', '#version', '#floor', '#withdrawn'}
for i = 2, #ARGV do names[#names + 1] = '=' .. ARGV[i] end
for _, value in ipairs(redis.call('HMGET', KEYS[1], unpack(names))) do answer[#answer + 1] = value end
return answer
