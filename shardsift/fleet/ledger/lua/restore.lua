-- Record receipts that were found with the output, for open shards that no worker holds. May run twice.
-- Deletes their checkpoints. ARGV: name, receipt … per shard. Returns how many were recorded.
local restored = 0
for i = 1, #ARGV, 2 do
  local name = ARGV[i]
  local open = redis.call('ZSCORE', waiting, name) or redis.call('ZSCORE', sent, name)
  if open and redis.call('HEXISTS', receipts, name) == 0 then
    close(name)
    forget_attempts(name)
    record_receipt(name, ARGV[i + 1])
    restored = restored + 1
  end
end
return restored
