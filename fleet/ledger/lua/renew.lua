-- Extend a lease and note progress; a shard whose lease ran out, and that nobody took since, is taken back.
-- ARGV: name, token, lease_ms, rows. Returns 'renewed', 'lost', 'cancelled', or 'unknown' for a shard that is not here.
local name, token, lease_ms, rows = unpack(ARGV)
if not is_known(name) then return 'unknown' end
if not may_write(name, token) then return 'lost' end
if redis.call('HEXISTS', run, 'cancelled') == 1 then return 'cancelled' end
if redis.call('HGET', attempts, 'token') ~= token then
  -- A claim that Redis forgot: made again, but by whom is not known. `fence` stays, or the others that Redis forgot with
  -- this one, and whose numbers are lower, would be refused.
  redis.call('HINCRBY', attempts, 'attempts', 1)
  redis.call('HINCRBY', attempts, 'crashes', 1)
  redis.call('HDEL', attempts, 'owner')
  redis.call('HSETNX', run, 'started_ms', now)
end
run_until(name, now + lease_ms)
redis.call('HSET', attempts, 'token', token, 'rows', rows)
redis.call('HDEL', attempts, 'spared')
note_rows(attempts, rows)
return 'renewed'
