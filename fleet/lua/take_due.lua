-- The shards to send a message for now: waiting ones whose time has come, running ones whose lease ran out, and, if
-- the broker's queue is empty, sent ones that no worker claimed for `resend_ms`. They become `sent`.
-- KEYS: run waiting sent running   ARGV: resend_ms (-1: the queue is not empty), limit, shard key prefix
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local run, waiting, sent, running = unpack(KEYS)
local limit = tonumber(ARGV[2])
local names = {}
if redis.call('HEXISTS', run, 'cancelled') == 1 then return names end
local function take(key, upto)
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', upto, 'LIMIT', 0, limit - #names)) do
    redis.call('ZREM', key, name)
    redis.call('ZADD', sent, now, name)
    names[#names + 1] = name
  end
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', running, '-inf', now, 'LIMIT', 0, limit)) do
  redis.call('HSET', ARGV[3] .. name, 'state', 'queued')
  redis.call('HDEL', ARGV[3] .. name, 'token', 'rows')
end
take(running, now)
take(waiting, now)
if tonumber(ARGV[1]) >= 0 then take(sent, now - ARGV[1] - 1) end
return names
