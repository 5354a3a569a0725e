-- Record the receipt of a shard, if the token is still valid, and delete its checkpoint. May run twice.
-- ARGV: name, token, receipt, lease_ms.
-- Returns {'recorded', 'lost' or 'unknown', open}; `open` is the number of shards that are neither done nor failed.
local name, token, receipt, lease_ms = unpack(ARGV)
if not is_known(name) then return {'unknown', open_shards()} end
if redis.call('HGET', receipts, name) == receipt then return {'recorded', open_shards()} end
if not may_write(name, token) then
  refuse('outputs of attempts that had lost their shard')
  return {'lost', open_shards()}
end
local said = cjson.decode(receipt)
close(name)
record_receipt(name, receipt)
note_rows(attempts, said.rows_in)
note_time(lease_ms)
note_work(said.provenance)
forget_attempts(name)
redis.call('HSET', run, 'finished_ms', now)
redis.call('HDEL', run, 'failed_attempts')
return {'recorded', open_shards()}
