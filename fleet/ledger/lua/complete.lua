-- Record the receipt of a shard, if the token is still valid, and delete its checkpoint. May run twice.
-- ARGV: name, token, receipt, rows in, rows kept, rows dropped, rows errored.
-- Returns {'recorded', 'lost' or 'unknown', open}; `open` is the number of shards that are neither done nor failed.
local name, token, receipt, rows_in, kept, dropped, errored = unpack(ARGV)
if not is_known(name) then return {'unknown', open_shards()} end
if redis.call('HGET', receipts, name) == receipt then return {'recorded', open_shards()} end
if not may_write(name, token) then
  refuse('outputs of attempts that had lost their shard')
  return {'lost', open_shards()}
end
close(name)
redis.call('HSET', receipts, name, receipt)
note_rows(attempts, rows_in)
note_time()
forget_attempts(attempts, scores)
redis.call('HINCRBY', run, 'rows_in', rows_in)
redis.call('HINCRBY', run, 'rows_kept', kept)
redis.call('HINCRBY', run, 'rows_dropped', dropped)
redis.call('HINCRBY', run, 'rows_errored', errored)
redis.call('HSET', run, 'finished_ms', now)
receipts_changed()
return {'recorded', open_shards()}
