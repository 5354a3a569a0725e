-- Give a shard back, if the token still holds: to `waiting`, or to `failed` when it may not be tried again.
-- Returns {state or 'lost', open}: 'queued' or 'failed', and how many shards are not yet done or failed.
-- KEYS: run waiting sent running failed shard
-- ARGV: name, token, delay_ms, max_attempts (0: fail now), count this attempt (0|1), error, traceback
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local run, waiting, sent, running, failed, shard = unpack(KEYS)
local state = 'lost'
if redis.call('HGET', shard, 'token') == ARGV[2] then
  redis.call('ZREM', running, ARGV[1])
  redis.call('HDEL', shard, 'token', 'rows')
  if ARGV[6] ~= '' then redis.call('HSET', shard, 'error', ARGV[6], 'traceback', ARGV[7]) end
  if ARGV[5] == '0' then redis.call('HINCRBY', shard, 'attempts', -1) end
  if tonumber(redis.call('HGET', shard, 'attempts')) >= tonumber(ARGV[4]) and ARGV[5] == '1' then
    state = 'failed'
    redis.call('SADD', failed, ARGV[1])
  else
    state = 'queued'
    redis.call('ZADD', waiting, now + ARGV[3], ARGV[1])
  end
  redis.call('HSET', shard, 'state', state)
end
return {state, redis.call('ZCARD', waiting) + redis.call('ZCARD', sent) + redis.call('ZCARD', running)}
