-- Queue anew what was sent or is running, for whoever knows that workers and messages are gone. An attempt under way
-- counts as stopped. ARGV: prefix of attempts keys.
local prefix = ARGV[1]
for _, name in ipairs(redis.call('ZRANGE', running, 0, -1)) do
  end_token(prefix .. name)
  redis.call('HINCRBY', prefix .. name, 'attempts', -1)
  redis.call('HINCRBY', prefix .. name, 'crashes', -1)
  wait(name, now)
end
for _, name in ipairs(redis.call('ZRANGE', sent, 0, -1)) do
  wait(name, redis.call('EXISTS', prefix .. name) == 1 and now or NEVER_TRIED)
end
