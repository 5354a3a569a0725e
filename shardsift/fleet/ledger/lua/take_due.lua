-- Take the shards that need a message now; they become `sent`. Takes none while the run is paused. Running shards whose
-- lease has expired wait again, or are failed if they have crashed too often.
-- ARGV: room, limit of each kind, lease_ms, outage_ms, max_crashes.
-- Returns {names of shards started before, names of fresh shards}, with at most `room` fresh ones.
local room, limit, lease_ms, outage_ms, max_crashes = unpack(ARGV)
local looked = tonumber(redis.call('HGET', run, 'looked_ms') or now)
redis.call('HSET', run, 'looked_ms', now)

-- If the clock of Redis went back since the last call, correct times that are too far in the future: no lease lasts
-- longer than a new one, no message was sent in the future, and back-offs keep the time that was left at the last call.
local function bring_closer(key, latest, by)
  local ahead = redis.call('ZRANGEBYSCORE', key, '(' .. latest, '+inf', 'WITHSCORES')
  for i = 1, #ahead, 2 do redis.call('ZADD', key, math.max(latest, ahead[i + 1] - by), ahead[i]) end
end
if looked > now then
  bring_closer(running, now + lease_ms, math.huge)
  bring_closer(sent, now, math.huge)
  bring_closer(waiting, now, looked - now)
end
if redis.call('HEXISTS', run, 'cancelled') == 1 then return {{}, {}} end
-- While a run is being written, shards may be done without a record in the ledger: their receipts are restored later.
if redis.call('HEXISTS', run, 'complete') == 0 or not is_whole() then return {{}, {}} end

-- If this script has not run for `outage_ms`, Redis was probably down or frozen. Leases that expired in that time are
-- extended once, so that they can be renewed; only once, because sweeps may also just be rare. There are at most as
-- many as workers, so they need no limit.
local was_away = now - looked > tonumber(outage_ms)
local expired = redis.call('ZRANGEBYSCORE', running, '-inf', now, 'WITHSCORES')
for i = 1, #expired, 2 do
  local name, key = expired[i], attempts_of(expired[i])
  if was_away and tonumber(expired[i + 1]) > looked and redis.call('HSETNX', key, 'spared', 1) == 1 then
    redis.call('ZADD', running, now + lease_ms, name)
  else
    note_crash(key, 'The lease ended without a renewal.')
    if tonumber(redis.call('HGET', key, 'crashes') or 0) >= tonumber(max_crashes) then
      give_up(name)
    else
      wait(name, now)
    end
  end
end
if is_paused() then return {{}, {}} end

local function take(key, from, upto, at_most)
  local names = redis.call('ZRANGEBYSCORE', key, from, upto, 'LIMIT', 0, at_most)
  for _, name in ipairs(names) do
    redis.call('ZREM', key, name)
    redis.call('ZADD', sent, now, name)
  end
  return names
end
-- A run with a limit of workers has one message at most for each worker that it may still have: more would be refused.
local function free_places()
  local most = max_workers()
  if not most then return limit end
  local _, scoring = scoring_workers()
  return math.max(0, most - scoring - redis.call('ZCARD', sent))
end
local again = take(waiting, '(' .. NEVER_TRIED, now, math.min(limit, free_places()))
local fresh = take(waiting, NEVER_TRIED, NEVER_TRIED, math.min(room, limit, free_places()))
return {again, fresh}
