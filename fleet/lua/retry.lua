-- Queue the failed shards of a run again, with fresh attempts, and lift a cancellation; with '1', the done ones too.
-- Returns how many. KEYS: run waiting failed done   ARGV: shard key prefix, done ones too (0|1)
local run, waiting, failed, done = unpack(KEYS)
local count = 0
local function queue(set)
  for _, name in ipairs(redis.call('SMEMBERS', set)) do
    redis.call('HSET', ARGV[1] .. name, 'state', 'queued', 'attempts', 0)
    redis.call('HDEL', ARGV[1] .. name, 'error', 'traceback', 'receipt')
    redis.call('ZADD', waiting, 0, name)
    count = count + 1
  end
  redis.call('DEL', set)
end
redis.call('HDEL', run, 'cancelled')
queue(failed)
if ARGV[2] == '1' then
  queue(done)
  redis.call('HDEL', run, 'rows_in', 'rows_kept', 'rows_dropped', 'rows_errored', 'published')
end
return count
