-- Record receipts that were found beside the outputs, for shards that nobody has done or holds. May run twice.
-- ARGV: name, receipt, in, kept, dropped, errored … per shard. Returns how many were recorded.
local restored = 0
for i = 1, #ARGV, 6 do
  local name = ARGV[i]
  local open = redis.call('ZSCORE', waiting, name) or redis.call('ZSCORE', sent, name)
  if open and redis.call('HSETNX', receipts, name, ARGV[i + 1]) == 1 then
    close(name)
    for j, total in ipairs({'rows_in', 'rows_kept', 'rows_dropped', 'rows_errored'}) do
      redis.call('HINCRBY', run, total, ARGV[i + 1 + j])
    end
    restored = restored + 1
  end
end
return restored
