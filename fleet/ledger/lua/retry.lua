-- Queue shards again that failed, with fresh tries, or that are done, whose rows then count no more.
-- ARGV: prefix of attempts keys, names. Returns how many were queued.
local prefix = ARGV[1]
local queued = 0

local function forget_receipt(name)
  local receipt = redis.call('HGET', receipts, name)
  if not receipt then return false end
  local rows = cjson.decode(receipt)
  for _, total in ipairs({'rows_in', 'rows_kept', 'rows_dropped', 'rows_errored'}) do
    redis.call('HINCRBY', run, total, 0 - rows[total]) -- not a minus alone: Lua's -0 is no integer to Redis
  end
  redis.call('HDEL', receipts, name)
  redis.call('HDEL', run, 'published')
  return true
end

for i = 2, #ARGV do
  local name = ARGV[i]
  if redis.call('SREM', failed, name) == 1 or forget_receipt(name) then
    redis.call('HDEL', prefix .. name, 'crashes', 'errors', 'error', 'traceback', 'token')
    redis.call('ZADD', waiting, NEVER_TRIED, name)
    queued = queued + 1
  end
end
return queued
