-- Cancel a run, unless it is published. Returns 'cancelled' or 'published'.
if redis.call('HEXISTS', run, 'published') == 1 and open_shards() == 0 then return 'published' end
redis.call('HSET', run, 'cancelled', 1)
return 'cancelled'
