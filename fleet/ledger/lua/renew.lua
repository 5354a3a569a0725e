-- Extend a lease and note progress; a shard whose lease ran out, and that nobody took since, is taken back.
-- ARGV: name, token, lease_ms, rows. Returns 'renewed', 'lost', 'cancelled', or 'unknown' for a run that is not here.
local name, token, lease_ms, rows = unpack(ARGV)
if redis.call('EXISTS', shards) == 0 then return 'unknown' end
if not may_write(name, token) then return 'lost' end
if redis.call('HEXISTS', run, 'cancelled') == 1 then return 'cancelled' end
local fence = tonumber(redis.call('HGET', run, 'fence') or 0)
redis.call('HSET', run, 'fence', math.max(fence, tonumber(string.match(token, '^%d+'))))
run_until(name, now + lease_ms)
redis.call('HSET', attempts, 'token', token, 'rows', rows)
return 'renewed'
