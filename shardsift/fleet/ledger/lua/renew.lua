-- Extend a lease and note progress. If the lease has expired and no other worker has claimed the shard, claim it back.
-- ARGV: name, token, lease_ms, rows, report (JSON or ''). Returns 'renewed', 'paused', 'lost', 'cancelled', or
-- 'unknown' if the run has no such shard. The lease is extended even if the run is paused, because its worker gives the
-- shard back only at the next batch, which may take long.
local name, token, lease_ms, rows, report = unpack(ARGV)
if not is_known(name) then return 'unknown' end
if not may_write(name, token) then return 'lost' end
if redis.call('HEXISTS', run, 'cancelled') == 1 then return 'cancelled' end
if redis.call('HGET', attempts, 'token') ~= token then
  -- Redis has forgotten this claim. Record it again, without its owner, which is unknown here. Do not raise `fence`:
  -- other forgotten claims have lower numbers and would be refused.
  redis.call('HINCRBY', attempts, 'attempts', 1)
  redis.call('HINCRBY', attempts, 'crashes', 1)
  redis.call('HDEL', attempts, 'owner')
  redis.call('HSETNX', run, 'started_ms', now)
end
run_until(name, now + lease_ms)
redis.call('HSET', attempts, 'token', token, 'rows', rows, 'report', report)
redis.call('HDEL', attempts, 'spared')
note_rows(attempts, rows)
note_time(lease_ms)
return is_paused() and 'paused' or 'renewed'
