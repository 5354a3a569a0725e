-- Cancel a run, unless it is published. A cancelled run is no longer paused. ARGV: the run that replaces it, or ''.
-- Returns 'cancelled' or 'published'.
if redis.call('HEXISTS', run, 'published') == 1 and open_shards() == 0 then return 'published' end
redis.call(ARGV[1] == '' and 'HSETNX' or 'HSET', run, 'cancelled', ARGV[1])
redis.call('HDEL', run, 'paused')
return 'cancelled'
