-- Extend a lease and note progress. If the lease has expired and no other worker has claimed the shard, claim it back.
-- ARGV: name, token, lease_ms, rows, report (JSON or ''), how far the checkpoint reaches that is stored elsewhere, or 0,
-- and the steps of a training (JSON or ''), which stay when the attempt has ended.
-- Returns 'renewed', 'paused', 'lost', 'cancelled', or 'unknown' if
-- the run has no such shard. A paused run's lease is extended too: its worker gives the shard back at the next batch, which
-- may take long.
local name, token, lease_ms, rows, report, checkpoint, steps = unpack(ARGV)
local function note_steps()
  if steps ~= '' then redis.call('HSET', attempts, 'steps', steps) end
end
if not is_known(name) then return 'unknown' end
if not may_write(name, token) then return 'lost' end
local is_recorded = redis.call('HGET', attempts, 'token') == token
if redis.call('HEXISTS', run, 'cancelled') == 1 then
  if is_recorded then note_steps() end
  return 'cancelled'
end
if not is_recorded then
  -- Redis has forgotten this claim. Record it again, without its owner, who is not known here. Do not raise `fence`:
  -- other forgotten claims have lower numbers and would be refused.
  redis.call('HINCRBY', attempts, 'attempts', 1)
  redis.call('HINCRBY', attempts, 'crashes', 1)
  redis.call('HDEL', attempts, 'owner')
  redis.call('HSETNX', run, 'started_ms', now)
end
run_until(name, now + lease_ms)
redis.call('HSET', attempts, 'token', token, 'rows', rows, 'report', report)
redis.call('HDEL', attempts, 'spared')
note_steps()
if tonumber(checkpoint) > tonumber(redis.call('HGET', attempts, 'checkpoint') or 0) then
  redis.call('HSET', attempts, 'checkpoint', checkpoint)
  note_advance(attempts)
end
note_rows(attempts, rows)
note_time(lease_ms)
return is_paused() and 'paused' or 'renewed'
