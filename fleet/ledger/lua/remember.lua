-- Note the receipts of earlier attempts, some of whose files still exist, for open shards. May run twice.
-- ARGV: prefix of the attempts keys, then name, receipt … per shard. Returns how many were noted.
local prefix = ARGV[1]
local noted = 0
for i = 2, #ARGV, 2 do
  local name = ARGV[i]
  if redis.call('ZSCORE', waiting, name) or redis.call('ZSCORE', sent, name) then
    noted = noted + redis.call('HSETNX', prefix .. name, 'previous', ARGV[i + 1])
  end
end
return noted
