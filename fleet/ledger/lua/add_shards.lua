-- Add shards to `waiting` unless the run already has them. A run with new shards is no longer published. May run twice.
-- ARGV: name, record as JSON … per shard. Returns the number of new shards.
local added = 0
for i = 1, #ARGV, 2 do
  if redis.call('HSETNX', shards, ARGV[i], ARGV[i + 1]) == 1 then
    redis.call('ZADD', waiting, NEVER_TRIED, ARGV[i])
    added = added + 1
  end
end
if added > 0 then redis.call('HDEL', run, 'published') end
return added
