-- Queue the failed shards of a run again, with fresh attempts, and lift a cancellation. Returns how many.
-- KEYS: run waiting failed   ARGV: shard key prefix
redis.call('HDEL', KEYS[1], 'cancelled')
local names = redis.call('SMEMBERS', KEYS[3])
for _, name in ipairs(names) do
  redis.call('HSET', ARGV[1] .. name, 'state', 'queued', 'attempts', 0)
  redis.call('HDEL', ARGV[1] .. name, 'error', 'traceback')
  redis.call('ZADD', KEYS[2], 0, name)
end
redis.call('DEL', KEYS[3])
return #names
