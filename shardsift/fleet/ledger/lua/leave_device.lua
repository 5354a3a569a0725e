-- Note that a shard needs its worker's device no longer, or soon: only its files must still be stored.
-- May run twice. ARGV: name, token, lease_ms.
local name, token, lease_ms = unpack(ARGV)
if redis.call('HGET', attempts, 'token') ~= token then return end
note_time(lease_ms)
redis.call('HSET', attempts, 'storing', 1)
