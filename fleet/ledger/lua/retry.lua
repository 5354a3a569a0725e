-- Queue the failed shards of a run again, with fresh tries, and lift a cancellation; with '1', the done ones too.
-- ARGV: done ones too (0|1), prefix of attempts keys. Returns how many.
local done_too, prefix = unpack(ARGV)
local count = 0
local function queue(names)
  for _, name in ipairs(names) do
    redis.call('HDEL', prefix .. name, 'crashes', 'errors', 'error', 'traceback', 'token')
    redis.call('ZADD', waiting, NEVER_TRIED, name)
    count = count + 1
  end
end
redis.call('HDEL', run, 'cancelled')
queue(redis.call('SMEMBERS', failed))
redis.call('DEL', failed)
if done_too == '1' then
  queue(redis.call('HKEYS', receipts))
  redis.call('DEL', receipts)
  redis.call('HDEL', run, 'rows_in', 'rows_kept', 'rows_dropped', 'rows_errored', 'published')
end
return count
