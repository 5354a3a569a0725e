-- Queue done shards again whose stored files are lost or damaged. Their receipts are removed and subtracted from the
-- totals. A shard that is damaged too often is failed.
-- ARGV: limit, then name, reason, data file … per shard. A shard is skipped if its data file is no longer this one
-- ("<staged path> <sha256>"), because it was scored again; '' skips none. Returns how many were queued or failed.
local limit = tonumber(ARGV[1])
local requeued = 0

for i = 2, #ARGV, 3 do
  local name, reason, which = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if has_file(name, which) then
    forget_receipt(name)
    local times = redis.call('HINCRBY', run, 'damaged:' .. name, 1)
    redis.call('HSET', attempts_of(name), 'error', reason, 'traceback', '')
    refuse('stored files that were lost or damaged')
    if times >= limit then
      redis.call('HSET', attempts_of(name), 'error', reason .. ' (found ' .. times .. ' times)')
      redis.call('SADD', failed, name)
    else
      redis.call('ZADD', waiting, now, name)
    end
    requeued = requeued + 1
  end
end
if requeued > 0 then redis.call('HDEL', run, 'publish_error', 'publish_after_ms') end
return requeued
