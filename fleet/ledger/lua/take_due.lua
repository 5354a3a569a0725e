-- The shards to send a message for now; they become `sent`. Also puts right what died: running shards whose lease ran
-- out wait again, or are failed after their last crash.
-- ARGV: room, limit of each kind, lease_ms, outage_ms, max_crashes, prefix of attempts keys.
-- Returns {names of shards begun before, names of fresh ones}; of fresh ones no more than there is room for.
local room, limit, lease_ms, outage_ms, max_crashes, prefix = unpack(ARGV)
local looked = tonumber(redis.call('HGET', run, 'looked_ms') or now)
redis.call('HSET', run, 'looked_ms', now)
if redis.call('HEXISTS', run, 'cancelled') == 1 then return {{}, {}} end
-- Of a run that is still being written, some shards may be done, and only their receipts beside the outputs know it.
if redis.call('HEXISTS', run, 'complete') == 0 then return {{}, {}} end

-- If nobody could look for so long, Redis was away or frozen: leases that ran out since get one lease more to be renewed,
-- and no second one, for it may be that just nobody looks often. There are no more of them than workers: they need no limit.
local was_away = now - looked > tonumber(outage_ms)
local expired = redis.call('ZRANGEBYSCORE', running, '-inf', now, 'WITHSCORES')
for i = 1, #expired, 2 do
  local name, key = expired[i], prefix .. expired[i]
  if was_away and tonumber(expired[i + 1]) > looked and redis.call('HSETNX', key, 'spared', 1) == 1 then
    redis.call('ZADD', running, now + lease_ms, name)
  else
    note_crash(key, 'Its worker vanished: no word for as long as a lease lasts.')
    if tonumber(redis.call('HGET', key, 'crashes') or 0) >= tonumber(max_crashes) then
      give_up(name)
    else
      wait(name, now)
    end
  end
end

local function take(key, from, upto, at_most)
  local names = redis.call('ZRANGEBYSCORE', key, from, upto, 'LIMIT', 0, at_most)
  for _, name in ipairs(names) do
    redis.call('ZREM', key, name)
    redis.call('ZADD', sent, now, name)
  end
  return names
end
local again = take(waiting, '(' .. NEVER_TRIED, now, limit)
local fresh = take(waiting, NEVER_TRIED, NEVER_TRIED, math.min(room, limit))
return {again, fresh}
