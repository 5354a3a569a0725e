-- Move the receipts of a run that has lost keys to the key in ARGV, and delete their totals. The run is half
-- enqueued until the caller has added its shards and receipts again. Does nothing if no key is lost. May run twice.
local taken = ARGV[1]
local has_records = redis.call('HEXISTS', run, 'spec') == 1 and redis.call('EXISTS', shards) == 1
if has_records and is_whole() then return end
if redis.call('EXISTS', receipts) == 1 and redis.call('RENAMENX', receipts, taken) == 0 then
  for _, name in ipairs(redis.call('HKEYS', receipts)) do
    redis.call('HSET', taken, name, redis.call('HGET', receipts, name))
  end
  redis.call('UNLINK', receipts)
end
redis.call('UNLINK', histograms, errored, left_out)
local totals = {'rows_in', 'rows_kept', 'rows_dropped', 'rows_errored', 'duplicates', 'stored_bytes'}
redis.call('HDEL', run, 'complete', 'shards', unpack(totals))
