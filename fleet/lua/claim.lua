-- Give a shard to a worker for a lease, with a new token; counts an attempt.
-- KEYS: run waiting sent running failed shard   ARGV: name, owner, lease_ms, max_attempts
-- Returns {'claimed', token, attempt, shard JSON, spec JSON} or {reason}.
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local run, waiting, sent, running, failed, shard = unpack(KEYS)
local name = ARGV[1]
local state = redis.call('HGET', shard, 'state')
if not state then return {'unknown'} end
if redis.call('HEXISTS', run, 'cancelled') == 1 then return {'cancelled'} end
if state == 'done' or state == 'failed' then return {state} end
if state == 'running' and tonumber(redis.call('ZSCORE', running, name)) > now then
  -- A worker has one child: a claim of the same owner says that the child which held the shard is dead.
  if redis.call('HGET', shard, 'owner') ~= ARGV[2] then return {'running'} end
end
local not_before = redis.call('ZSCORE', waiting, name)
if not_before and tonumber(not_before) > now then return {'waiting'} end
local attempts = redis.call('HINCRBY', shard, 'attempts', 1)
if attempts > tonumber(ARGV[4]) then
  redis.call('ZREM', waiting, name)
  redis.call('ZREM', sent, name)
  redis.call('ZREM', running, name)
  redis.call('SADD', failed, name)
  redis.call('HSET', shard, 'state', 'failed', 'attempts', attempts - 1)
  redis.call('HDEL', shard, 'token', 'rows')
  redis.call('HSETNX', shard, 'error', 'The worker vanished in each of ' .. (attempts - 1) .. ' attempts')
  return {'failed'}
end
local token = redis.call('HINCRBY', run, 'fence', 1)
redis.call('HSETNX', run, 'started_ms', now)
redis.call('ZREM', waiting, name)
redis.call('ZREM', sent, name)
redis.call('ZADD', running, now + ARGV[3], name)
redis.call('HSET', shard, 'state', 'running', 'token', token, 'owner', ARGV[2], 'rows', 0)
return {'claimed', token, attempts, redis.call('HGET', shard, 'shard'), redis.call('HGET', run, 'spec')}
