-- What every script begins with: the keys of a run, Redis' clock, and the moves that several scripts make.
-- A shard is in one place at a time: waiting, sent, running, failed, or in receipts, which is done.
local run, shards, waiting, sent, running, failed, receipts, attempts, scores, refused = unpack(KEYS)

-- The clock, in milliseconds. Time enters the scripts here alone.
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local now = now_ms()

local NEVER_TRIED = 0 -- the place in `waiting` of a shard that nobody began; others stand by when they are due

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

-- How fast the run goes: the rows scored in each of the last thirty slots of ten seconds, in a ring of fields, and the number
-- of slots in which a worker had a shard. fleet/ledger/pace.py reads it.
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

-- The rows of a shard that are scored by now. Those that an earlier attempt scored, and this one reads from the checkpoint, do
-- not count again.
local function note_rows(key, rows)
  local counted = tonumber(redis.call('HGET', key, 'counted') or 0)
  local more = math.max(0, tonumber(rows) - counted)
  if more > 0 then redis.call('HSET', key, 'counted', rows) end
  note_pace(more)
end

-- An attempt that ended without a word of its own.
local function note_crash(key, error)
  redis.call('HSET', key, 'error', error, 'traceback', '', 'worker', redis.call('HGET', key, 'owner') or '')
  redis.call('HDEL', key, 'rows', 'spared')
end

-- Of a shard that is done: what is known of its attempts, and its checkpoint.
local function forget_attempts(attempts_key, scores_key)
  local bytes = redis.call('HGET', attempts_key, 'checkpoint_bytes')
  if bytes then redis.call('HINCRBY', run, 'checkpoint_bytes', 0 - bytes) end
  redis.call('DEL', attempts_key, scores_key)
end

-- The receipts of the run changed: a publication of those that were read before is not recorded.
local function receipts_changed()
  redis.call('HINCRBY', run, 'receipts_version', 1)
end

-- Take a done shard's receipt out of the run and its totals; returns it, or false for a shard that is not done.
local function forget_receipt(name)
  local receipt = redis.call('HGET', receipts, name)
  if not receipt then return false end
  local rows = cjson.decode(receipt)
  for _, total in ipairs({'rows_in', 'rows_kept', 'rows_dropped', 'rows_errored'}) do
    redis.call('HINCRBY', run, total, 0 - rows[total]) -- not a minus alone: Lua's -0 is no integer to Redis
  end
  redis.call('HDEL', receipts, name)
  redis.call('HDEL', run, 'published')
  receipts_changed()
  return receipt
end

-- What stands for the token of an attempt that ended: nobody's, so that a renewal under way does not take the shard back.
local function ended(token)
  return 'ended ' .. token
end

local function end_token(key)
  redis.call('HSET', key, 'token', ended(redis.call('HGET', key, 'token')))
  redis.call('HDEL', key, 'rows', 'spared')
end

-- A run that Redis lost is written anew shard by shard.
local function is_known(name)
  return redis.call('HEXISTS', shards, name) == 1
end

-- Whether whoever shows this token may still write: it is the shard's newest; or it is newer than any that the ledger
-- remembers, as after a restart of Redis from an older state or from none, and nobody else holds the shard.
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
