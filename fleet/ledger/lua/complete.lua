-- Record the receipt of a shard, if the token still holds, and free its checkpoint. May run twice.
-- ARGV: name, token, receipt, in, kept, dropped, errored.
-- Returns {'recorded', 'lost' or 'unknown', open}: how many shards of the run are not yet done or failed.
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
forget_attempts(attempts, scores)
redis.call('HINCRBY', run, 'rows_in', rows_in)
redis.call('HINCRBY', run, 'rows_kept', kept)
redis.call('HINCRBY', run, 'rows_dropped', dropped)
redis.call('HINCRBY', run, 'rows_errored', errored)
redis.call('HSET', run, 'finished_ms', now)
receipts_changed()
return {'recorded', open_shards()}
