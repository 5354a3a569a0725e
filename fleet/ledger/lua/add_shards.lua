-- Put shards that the run does not have yet into `waiting`; with them it is no longer published. May run twice.
-- ARGV: name, fields as JSON … per shard. Returns how many were new.
local added = 0
for i = 1, #ARGV, 2 do
  if redis.call('HSETNX', shards, ARGV[i], ARGV[i + 1]) == 1 then
    redis.call('ZADD', waiting, NEVER_TRIED, ARGV[i])
    added = added + 1
  end
end
if added > 0 then redis.call('HDEL', run, 'published') end
return added
