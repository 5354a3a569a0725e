-- End an attempt without a receipt, if the caller still holds the shard. The shard goes to `waiting` or `failed`.
-- ARGV: name, 'token' or 'owner', that token or owner, outcome, error, traceback, backoff_ms, max_backoff_ms,
-- max_crashes, max_errors, lease_ms, least_ms (the minimum back-off). Returns {'queued', 'failed' or 'lost', open}.
local name, by, whose, outcome, error, traceback, backoff_ms, max_backoff_ms = unpack(ARGV)
local max_crashes, max_errors, lease_ms, least_ms = unpack(ARGV, 9)
local ours = redis.call('HGET', attempts, by) == whose
if ours and error ~= '' then -- even if the sweep was faster: it did not know the reason
  local owner = redis.call('HGET', attempts, 'owner') or ''
  redis.call('HSET', attempts, 'error', error, 'traceback', traceback, 'worker', owner)
end
ours = ours and redis.call('SISMEMBER', failed, name) == 0
if by == 'owner' then ours = ours and redis.call('ZSCORE', running, name) end
if not ours then return {'lost', open_shards()} end
note_time(lease_ms)
end_token(attempts)

if outcome == 'error' or outcome == 'crash' then note_failed_attempt() end
local tries, limit = 1, 1 -- of a non-retryable shard
if outcome == 'stopped' then
  redis.call('HINCRBY', attempts, 'attempts', -1)
  redis.call('HINCRBY', attempts, 'crashes', -1)
  tries, backoff_ms = 0, 0
elseif outcome == 'error' then
  redis.call('HINCRBY', attempts, 'crashes', -1)
  tries, limit = redis.call('HINCRBY', attempts, 'errors', 1), max_errors
elseif outcome == 'crash' then
  tries, limit = tonumber(redis.call('HGET', attempts, 'crashes')), max_crashes
end
if tries >= tonumber(limit) then
  give_up(name)
  return {'failed', open_shards()}
end
local backoff = math.min(backoff_ms * 4 ^ math.max(0, tries - 1), max_backoff_ms)
wait(name, now + math.max(backoff, tonumber(least_ms)))
return {'queued', open_shards()}
