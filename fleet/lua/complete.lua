-- Record the receipt of a shard, if the token still holds. Returns {recorded, open}: whether the shard now has this
-- receipt, and how many shards of the run are not yet done or failed. May run twice.
-- KEYS: run waiting sent running done shard   ARGV: name, token, receipt, in, kept, dropped, errored
local run, waiting, sent, running, done, shard = unpack(KEYS)
local recorded = 0
if redis.call('HGET', shard, 'token') == ARGV[2] then
  recorded = 1
  redis.call('ZREM', running, ARGV[1])
  redis.call('SADD', done, ARGV[1])
  redis.call('HSET', shard, 'state', 'done', 'receipt', ARGV[3])
  redis.call('HDEL', shard, 'token', 'rows', 'error', 'traceback')
  redis.call('HINCRBY', run, 'rows_in', ARGV[4])
  redis.call('HINCRBY', run, 'rows_kept', ARGV[5])
  redis.call('HINCRBY', run, 'rows_dropped', ARGV[6])
  redis.call('HINCRBY', run, 'rows_errored', ARGV[7])
  local now = redis.call('TIME')
  redis.call('HSET', run, 'finished_ms', now[1] * 1000 + math.floor(now[2] / 1000))
elseif redis.call('HGET', shard, 'receipt') == ARGV[3] then
  recorded = 1
end
return {recorded, redis.call('ZCARD', waiting) + redis.call('ZCARD', sent) + redis.call('ZCARD', running)}
