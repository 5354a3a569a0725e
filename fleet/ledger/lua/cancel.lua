-- Cancel a run, unless it is published. A cancelled run is no longer paused. Returns 'cancelled' or 'published'.
if redis.call('HEXISTS', run, 'published') == 1 and open_shards() == 0 then return 'published' end
redis.call('HSET', run, 'cancelled', 1)
redis.call('HDEL', run, 'paused')
return 'cancelled'
