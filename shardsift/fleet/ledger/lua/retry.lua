-- Queue failed or done shards again. Their attempts start at zero. Rows of done shards are subtracted from the totals.
-- ARGV: names. Returns how many were queued.
local queued = 0

for i = 1, #ARGV do
  local name = ARGV[i]
  if redis.call('SREM', failed, name) == 1 or forget_receipt(name) then
    redis.call('HDEL', attempts_of(name), 'crashes', 'errors', 'error', 'traceback', 'token')
    redis.call('ZADD', waiting, NEVER_TRIED, name)
    queued = queued + 1
  end
end
return queued
