-- Store the scores of a window, if the token is valid and the run's checkpoints have room. May run twice.
-- ARGV: name, token, window, scores, limit_bytes. Returns 'saved', 'full' or 'lost'.
local name, token, window, blob, limit_bytes = unpack(ARGV)
if not may_write(name, token) then return 'lost' end
redis.call('HSET', run, 'scored', 1) -- so that the number format stays as it is
local more = #blob - redis.call('HSTRLEN', scores, window)
if tonumber(redis.call('HGET', run, 'checkpoint_bytes') or 0) + more > tonumber(limit_bytes) then
  redis.call('HSET', attempts, 'spilled', 1)
  return 'full'
end
if redis.call('HSET', scores, window, blob) == 1 then note_advance(attempts) end
redis.call('HINCRBY', attempts, 'checkpoint_bytes', more)
redis.call('HINCRBY', run, 'checkpoint_bytes', more)
return 'saved'
