-- Give a shard to a worker for one lease, with a new token. The attempt counts as a crash until it ends properly.
-- ARGV: name, owner, lease_ms, max_crashes, nonce, number format (or ''). A call with the same nonce returns the same
-- claim again, because the first answer may have been lost.
-- Returns {'claimed', token, attempt, spilled (0|1), shard JSON, spec JSON} or {reason}.
local name, owner, lease_ms, max_crashes, nonce, format = unpack(ARGV)
local function claimed(token, attempt)
  local spilled = redis.call('HEXISTS', attempts, 'spilled')
  local shard, spec = redis.call('HGET', shards, name), redis.call('HGET', run, 'spec')
  return {'claimed', token, attempt, spilled, shard, spec}
end
if not is_known(name) or redis.call('HEXISTS', run, 'spec') == 0 then return {'unknown'} end
if redis.call('HEXISTS', run, 'cancelled') == 1 then return {'cancelled'} end
if redis.call('HEXISTS', receipts, name) == 1 then return {'done'} end
if redis.call('SISMEMBER', failed, name) == 1 then return {'failed'} end

local lease_end = redis.call('ZSCORE', running, name)
if lease_end then
  local token = redis.call('HGET', attempts, 'token')
  if token and string.sub(token, -#nonce) == nonce then
    return claimed(token, tonumber(redis.call('HGET', attempts, 'attempts')))
  end
  -- A worker runs one scoring process at a time, so a second claim of the shard by the same owner means that
  -- the first process crashed.
  local previous = redis.call('HGET', attempts, 'owner')
  if tonumber(lease_end) > now and previous ~= owner then return {'running'} end
  note_crash(attempts, 'The shard was claimed again before this attempt had ended.')
end
if tonumber(redis.call('HGET', attempts, 'crashes') or 0) >= tonumber(max_crashes) then
  give_up(name)
  return {'failed'}
end
local function is_full()
  local most = max_workers()
  if not most then return false end
  local workers, count = scoring_workers(name)
  return count - (workers[owner] and 1 or 0) >= most
end
-- Whether the run has another number format. The format may change while nothing is scored and no worker holds a shard.
local function is_other_format()
  local settled = redis.call('HGET', run, 'format')
  if format == '' or not settled or settled == format then return false end
  return redis.call('HEXISTS', run, 'scored') + redis.call('HLEN', receipts) + redis.call('ZCARD', running) > 0
end
local refusal = is_paused() and 'paused' or is_other_format() and 'format' or is_full() and 'full'
if refusal then
  -- The message is used up. The shard gets a new one when the run is resumed, when a worker has finished its shard, or
  -- in the next sweep.
  if not redis.call('ZSCORE', waiting, name) then wait_for_message(name, attempts) end
  return {refusal}
end
local due = redis.call('ZSCORE', waiting, name)
if due and tonumber(due) > now then return {'waiting'} end

local token = redis.call('HINCRBY', run, 'fence', 1) .. '-' .. nonce
local attempt = redis.call('HINCRBY', attempts, 'attempts', 1)
redis.call('HINCRBY', attempts, 'crashes', 1)
redis.call('HSET', attempts, 'token', token, 'owner', owner, 'rows', 0, 'noted_ms', now)
redis.call('HDEL', attempts, 'spared', 'storing')
redis.call('HSETNX', run, 'started_ms', now)
if format ~= '' then redis.call('HSET', run, 'format', format) end
note_pace(0)
run_until(name, now + lease_ms)
return claimed(token, attempt)
