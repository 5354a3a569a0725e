-- Put shards that the run does not have yet into `waiting`. May run twice.
-- ARGV: name, fields as JSON … per shard. Returns how many were new.
local added = 0
for i = 1, #ARGV, 2 do
  if redis.call('HSETNX', shards, ARGV[i], ARGV[i + 1]) == 1 then
    redis.call('ZADD', waiting, NEVER_TRIED, ARGV[i])
    added = added + 1
  end
end
return added
