-- Record a publication if the receipts are still those that it was made of; else there is none, and a sweep asks again.
-- ARGV: publication, version of the receipts or '' for any. Returns 'recorded' or 'stale'.
local publication, version = unpack(ARGV)
redis.call('HDEL', run, 'publishing_ms')
if version ~= '' and version ~= (redis.call('HGET', run, 'receipts_version') or '0') then
  redis.call('HDEL', run, 'published')
  return 'stale'
end
redis.call('HSET', run, 'published', publication)
redis.call('HDEL', run, 'cancelled', 'publish_error', 'publish_failed', 'publish_after_ms', 'tidy_tries')
return 'recorded'
