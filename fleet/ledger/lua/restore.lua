-- Record receipts that were found beside the outputs, for shards that nobody has done or holds. May run twice.
-- Frees their checkpoints. ARGV: prefixes of attempts and of scores keys, then per shard: name, receipt, in, kept, dropped,
-- errored. Returns how many were recorded.
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
