-- Record that the kept rows of done shards are in other data files now. Skips shards whose file has changed meanwhile.
-- ARGV: name, old data file (as in requeue.lua), new receipt … per shard. Returns how many were recorded.
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
