-- Pause a run that has open shards. A run that is already paused keeps its reason.
-- ARGV: reason, or '' if a person asked for it. Returns 'paused', 'cancelled', 'published' or 'over'.
if redis.call('HEXISTS', run, 'cancelled') == 1 then return 'cancelled' end
if open_shards() == 0 then
  return redis.call('HEXISTS', run, 'published') == 1 and 'published' or 'over'
end
redis.call('HSETNX', run, 'paused', ARGV[1])
return 'paused'
