-- Replace the records of shards that are not done. May run twice. ARGV: name, record as JSON … per shard.
-- Returns how many changed.
local changed = 0
for i = 1, #ARGV, 2 do
  local name, record = ARGV[i], ARGV[i + 1]
  local is_open = is_known(name) and redis.call('HEXISTS', receipts, name) == 0
  if is_open and redis.call('HGET', shards, name) ~= record then
    redis.call('HSET', shards, name, record)
    changed = changed + 1
  end
end
return changed
