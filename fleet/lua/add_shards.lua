-- Put shards that the run does not have yet into `waiting`. May run twice.
-- KEYS: run waiting   ARGV: shard key prefix, then name, fields as JSON … per shard. Returns how many were new.
local added = 0
for i = 2, #ARGV, 2 do
  local key = ARGV[1] .. ARGV[i]
  if redis.call('HSETNX', key, 'shard', ARGV[i + 1]) == 1 then
    redis.call('HSET', key, 'state', 'queued', 'attempts', 0)
    redis.call('ZADD', KEYS[2], 0, ARGV[i])
    added = added + 1
  end
end
redis.call('HINCRBY', KEYS[1], 'shards', added)
return added
