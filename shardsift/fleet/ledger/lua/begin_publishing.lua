-- Note that a finalizer begins to publish. Returns the version of the receipts, or nil if the run is cancelled. A later
-- cancellation does not stop this finalizer; instead, the publication ends the cancellation.
if redis.call('HEXISTS', run, 'cancelled') == 1 then return false end
redis.call('HSET', run, 'publishing_ms', now)
return tonumber(redis.call('HGET', run, 'receipts_version') or 0)
