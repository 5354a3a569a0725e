-- The beginning of every script: the keys of a run, the clock of Redis, and functions that several scripts use.
-- A shard is in one place at a time: `waiting`, `sent`, `running`, `failed` or `receipts`. In `receipts` it is done.
local run, shards, waiting, sent, running, failed, receipts, attempts, scores, refused = unpack(KEYS)

-- The time in milliseconds. No other code in the scripts reads a clock, so a test can replace this function.
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local now = now_ms()

local NEVER_TRIED = 0 -- score in `waiting` of a shard without an attempt; other shards have the time when they are due

local function is_paused()
  return redis.call('HEXISTS', run, 'paused') == 1
end

local function open_shards()
  return redis.call('ZCARD', waiting) + redis.call('ZCARD', sent) + redis.call('ZCARD', running)
end

local function wait(name, due)
  redis.call('ZREM', sent, name)
  redis.call('ZREM', running, name)
  redis.call('ZADD', waiting, due, name)
end

local function run_until(name, lease_end)
  redis.call('ZREM', waiting, name)
  redis.call('ZREM', sent, name)
  redis.call('ZADD', running, lease_end, name)
end

local function close(name)
  redis.call('ZREM', waiting, name)
  redis.call('ZREM', sent, name)
  redis.call('ZREM', running, name)
end

local function give_up(name)
  close(name)
  redis.call('SADD', failed, name)
end

-- Let a shard wait whose message is used up or removed. `key` is that of its attempts.
local function wait_for_message(name, key)
  wait(name, redis.call('EXISTS', key) == 1 and now or NEVER_TRIED)
end

-- The most workers that may hold shards at once, or nil for any number.
local function max_workers()
  return tonumber(redis.call('HGET', run, 'max_workers'))
end

-- The pace of the run: the rows scored in each of the last thirty slots of ten seconds, in a ring of fields, and the number
-- of slots in which a worker held a shard. fleet/ledger/pace.py reads both.
local SLOT_MS, SLOTS = 10000, 30

local function note_pace(rows_scored)
  local slot = math.floor(now / SLOT_MS)
  local field = 'pace:' .. slot % SLOTS
  local noted, rows_before = string.match(redis.call('HGET', run, field) or '', '^(%d+):(%d+)$')
  if tonumber(noted) ~= slot then
    rows_before = 0
    redis.call('HINCRBY', run, 'slots', 1)
  end
  redis.call('HSET', run, field, string.format('%d:%d', slot, rows_before + rows_scored))
  if rows_scored > 0 then
    redis.call('HINCRBY', run, 'rows_scored', rows_scored)
    redis.call('HSET', run, 'advanced_ms', now)
  end
end

-- Note how many rows of a shard are scored so far. Rows that this attempt took from the checkpoint do not count again.
local function note_rows(key, rows)
  local counted = tonumber(redis.call('HGET', key, 'counted') or 0)
  local more = math.max(0, tonumber(rows) - counted)
  if more > 0 then redis.call('HSET', key, 'counted', rows) end
  note_pace(more)
end

-- Add the time since the last note of this attempt to the time that workers have held shards of the run. A worker that
-- vanishes is counted until its last renewal.
local function note_time()
  local since = redis.call('HGET', attempts, 'noted_ms')
  if since then redis.call('HINCRBY', run, 'worker_ms', math.max(0, now - since)) end
  redis.call('HSET', attempts, 'noted_ms', now)
end

-- Record an attempt that ended without reporting why.
local function note_crash(key, error)
  redis.call('HSET', key, 'error', error, 'traceback', '', 'worker', redis.call('HGET', key, 'owner') or '')
  redis.call('HDEL', key, 'rows', 'spared', 'noted_ms')
end

-- Delete the record of a done shard's attempts, and its checkpoint.
local function forget_attempts(attempts_key, scores_key)
  local bytes = redis.call('HGET', attempts_key, 'checkpoint_bytes')
  if bytes then redis.call('HINCRBY', run, 'checkpoint_bytes', 0 - bytes) end
  redis.call('DEL', attempts_key, scores_key)
end

-- Note that the receipts of the run changed. A publication of receipts that were read earlier is then not recorded.
local function receipts_changed()
  redis.call('HINCRBY', run, 'receipts_version', 1)
end

-- Remove a done shard's receipt from the run and its totals. Returns the receipt, or false if the shard is not done.
local function forget_receipt(name)
  local receipt = redis.call('HGET', receipts, name)
  if not receipt then return false end
  local rows = cjson.decode(receipt)
  for _, total in ipairs({'rows_in', 'rows_kept', 'rows_dropped', 'rows_errored'}) do
    redis.call('HINCRBY', run, total, 0 - rows[total]) -- not -rows[total]: Redis does not accept Lua's -0 as an integer
  end
  redis.call('HDEL', receipts, name)
  redis.call('HDEL', run, 'published')
  receipts_changed()
  return receipt
end

-- The value that replaces the token of an ended attempt. It equals no token, so a late renewal cannot take the shard back.
local function ended(token)
  return 'ended ' .. token
end

local function end_token(key)
  redis.call('HSET', key, 'token', ended(redis.call('HGET', key, 'token')))
  redis.call('HDEL', key, 'rows', 'spared', 'noted_ms')
end

-- Whether the run has this shard. After Redis lost a run, enqueueing writes its shards again, one batch after another.
local function is_known(name)
  return redis.call('HEXISTS', shards, name) == 1
end

-- Whether the holder of this token may write. It may if the token is the newest of the shard. It may also if the token is
-- newer than every token in the ledger and no other worker holds the shard: then Redis restarted from an older state.
local function may_write(name, token)
  if not is_known(name) then return false end
  if redis.call('HEXISTS', receipts, name) == 1 or redis.call('SISMEMBER', failed, name) == 1 then return false end
  local newest = redis.call('HGET', attempts, 'token')
  if newest == token then return true end
  if newest == ended(token) then return false end
  local number = tonumber(string.match(token, '^(%d+)%-'))
  local forgotten = number and number > tonumber(redis.call('HGET', run, 'fence') or 0)
  return forgotten and not redis.call('ZSCORE', running, name)
end

local function refuse(reason)
  redis.call('HINCRBY', refused, reason, 1)
end
