-- Note that an attempt is done with its worker's device, or nearly so, and goes on to store the shard's files.
-- May run twice. ARGV: name, token, lease_ms.
local name, token, lease_ms = unpack(ARGV)
if redis.call('HGET', attempts, 'token') ~= token then return end
note_time(lease_ms)
redis.call('HSET', attempts, 'storing', 1)
