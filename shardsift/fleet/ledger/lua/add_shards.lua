-- Add shards to `waiting` unless the run already has them. A known shard that is in none of the states, because the
-- server deleted a key, counts as new. A run with new shards is no longer published. May run twice.
-- ARGV: name, record as JSON … per shard. Returns the number of new shards.
local function has_place(name)
  local is_open = redis.call('ZSCORE', waiting, name) or redis.call('ZSCORE', sent, name) or redis.call('ZSCORE', running, name)
  return is_open or redis.call('SISMEMBER', failed, name) == 1 or redis.call('HEXISTS', receipts, name) == 1
end
local added = 0
for i = 1, #ARGV, 2 do
  redis.call('HSETNX', shards, ARGV[i], ARGV[i + 1])
  if not has_place(ARGV[i]) then
    redis.call('ZADD', waiting, NEVER_TRIED, ARGV[i])
    added = added + 1
  end
end
if added > 0 then redis.call('HDEL', run, 'published') end
return added
