-- Record receipts that were found with the output, for open shards that no worker holds. May run twice.
-- Deletes their checkpoints. ARGV: prefixes of the attempts and scores keys, then per shard: name, receipt, rows in, rows
-- kept, rows dropped, rows errored. Returns how many were recorded.
local attempts_prefix, scores_prefix = ARGV[1], ARGV[2]
local restored = 0
for i = 3, #ARGV, 6 do
  local name = ARGV[i]
  local open = redis.call('ZSCORE', waiting, name) or redis.call('ZSCORE', sent, name)
  if open and redis.call('HSETNX', receipts, name, ARGV[i + 1]) == 1 then
    close(name)
    forget_attempts(attempts_prefix .. name, scores_prefix .. name)
    for j, total in ipairs({'rows_in', 'rows_kept', 'rows_dropped', 'rows_errored'}) do
      redis.call('HINCRBY', run, total, ARGV[i + 1 + j])
    end
    receipts_changed()
    restored = restored + 1
  end
end
return restored
