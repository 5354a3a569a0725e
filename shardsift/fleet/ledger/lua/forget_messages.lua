-- Queue all sent and running shards again. Call it only if all workers and messages are gone.
-- A running attempt counts as stopped.
for _, name in ipairs(redis.call('ZRANGE', running, 0, -1)) do
  end_token(attempts_of(name))
  redis.call('HINCRBY', attempts_of(name), 'attempts', -1)
  redis.call('HINCRBY', attempts_of(name), 'crashes', -1)
  wait(name, now)
end
for _, name in ipairs(redis.call('ZRANGE', sent, 0, -1)) do
  wait_for_message(name, attempts_of(name))
end
