-- Have shards wait anew whose message is lost, unless they were claimed or sent again since. May run twice.
-- ARGV: age_ms: no younger ones; then names. Returns how many.
local queued = 0
for i = 2, #ARGV do
  local sent_ms = redis.call('ZSCORE', sent, ARGV[i])
  if sent_ms and tonumber(sent_ms) <= now - ARGV[1] then
    wait(ARGV[i], now)
    queued = queued + 1
  end
end
return queued
