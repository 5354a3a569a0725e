-- Let sent shards wait again whose messages were removed from the queue. May run twice. ARGV: prefix of the attempts keys, names.
local prefix = ARGV[1]
for i = 2, #ARGV do
  if redis.call('ZSCORE', sent, ARGV[i]) then wait_for_message(ARGV[i], prefix .. ARGV[i]) end
end
