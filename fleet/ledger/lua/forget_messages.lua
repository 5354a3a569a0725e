-- Queue all sent and running shards again. For a caller that knows that all workers and messages are gone.
-- A running attempt counts as stopped. ARGV: prefix of the attempts keys.
local prefix = ARGV[1]
for _, name in ipairs(redis.call('ZRANGE', running, 0, -1)) do
  end_token(prefix .. name)
  redis.call('HINCRBY', prefix .. name, 'attempts', -1)
  redis.call('HINCRBY', prefix .. name, 'crashes', -1)
  wait(name, now)
end
for _, name in ipairs(redis.call('ZRANGE', sent, 0, -1)) do
  wait_for_message(name, prefix .. name)
end
