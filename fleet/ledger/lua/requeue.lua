-- Queue done shards again whose stored files are lost or damaged. Their receipts leave the run and its totals, and stay with
-- the next attempt, which may use what is left of the files. A shard that this happens to too often is failed.
-- ARGV: prefix of attempts keys, version of the receipts or '' for any, limit, then name, reason … per shard.
-- Returns how many were queued or failed; none if the receipts are of another version.
local prefix, version, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
if version ~= '' and version ~= (redis.call('HGET', run, 'receipts_version') or '0') then return 0 end
local requeued = 0
for i = 4, #ARGV, 2 do
  local name, reason = ARGV[i], ARGV[i + 1]
  local receipt = forget_receipt(name)
  if receipt then
    local times = redis.call('HINCRBY', run, 'damaged:' .. name, 1)
    redis.call('HSET', prefix .. name, 'previous', receipt, 'error', reason, 'traceback', '')
    refuse('stored files that were lost or damaged')
    if times >= limit then
      redis.call('HSET', prefix .. name, 'error', reason .. ' (found so ' .. times .. ' times)')
      redis.call('SADD', failed, name)
    else
      redis.call('ZADD', waiting, now, name)
    end
    requeued = requeued + 1
  end
end
return requeued
