-- Record that the kept rows of done shards are in another data file now. Shards whose file has changed meanwhile are left out.
-- ARGV: name, data file before, as in requeue.lua, and the new receipt of each shard. Returns how many were recorded.
local moved = 0
for i = 1, #ARGV, 3 do
  local name, before, receipt = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if has_file(name, before) then
    forget_receipt(name)
    record_receipt(name, receipt)
    moved = moved + 1
  end
end
return moved
