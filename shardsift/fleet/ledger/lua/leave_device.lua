-- Note that a shard no longer needs its worker's device, or soon will not: what is left is to store its files.
-- May run twice. ARGV: name, token, lease_ms.
local name, token, lease_ms = unpack(ARGV)
if redis.call('HGET', attempts, 'token') ~= token then return end
note_time(lease_ms)
redis.call('HSET', attempts, 'storing', 1)
