-- Queue shards again whose message is lost, unless they were claimed or sent again in the meantime. May run twice.
-- ARGV: the minimum age of the message in ms, then names. Returns the names of the shards that were queued.
local queued = {}
for i = 2, #ARGV do
  local sent_ms = redis.call('ZSCORE', sent, ARGV[i])
  if sent_ms and tonumber(sent_ms) <= now - ARGV[1] then
    wait(ARGV[i], now)
    queued[#queued + 1] = ARGV[i]
  end
end
return queued
