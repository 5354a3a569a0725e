-- Record a publication, if the receipts have not changed since it began. Otherwise the run is not published, and a
-- sweep tries again.
-- ARGV: publication, version of the receipts or '' for any. Returns 'recorded' or 'stale'.
local publication, version = unpack(ARGV)
redis.call('HDEL', run, 'publishing_ms')
if version ~= '' and version ~= (redis.call('HGET', run, 'receipts_version') or '0') then
  redis.call('HDEL', run, 'published')
  return 'stale'
end
redis.call('HSET', run, 'published', publication)
redis.call('HDEL', run, 'cancelled', 'publish_error', 'publish_failed', 'publish_after_ms', 'tidy_tries')
if open_shards() == 0 then redis.call('HDEL', run, 'paused') end
return 'recorded'
