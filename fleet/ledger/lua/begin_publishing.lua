-- Note that a finalizer is about to publish. Returns the version of the receipts, or nil for a cancelled run: from here on a
-- cancellation comes too late for this finalizer, and what it publishes ends the cancellation.
if redis.call('HEXISTS', run, 'cancelled') == 1 then return false end
redis.call('HSET', run, 'publishing_ms', now)
return tonumber(redis.call('HGET', run, 'receipts_version') or 0)
