-- Extend a lease and note progress. Returns 'renewed', 'lost' or 'cancelled'.
-- KEYS: run running shard   ARGV: name, token, lease_ms, rows
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
if redis.call('HGET', KEYS[3], 'token') ~= ARGV[2] then return 'lost' end
if redis.call('HEXISTS', KEYS[1], 'cancelled') == 1 then return 'cancelled' end
redis.call('ZADD', KEYS[2], now + ARGV[3], ARGV[1])
redis.call('HSET', KEYS[3], 'rows', ARGV[4])
return 'renewed'
