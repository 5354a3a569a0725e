-- The beginning of every script: the keys of a run, the clock of Redis, and functions that several scripts use.
-- A shard is in one place at a time: `waiting`, `sent`, `running`, `failed` or `receipts`. In `receipts` it is done.
local run, shards, waiting, sent, running, failed, receipts = unpack(KEYS)
local histograms, errored, attempts, scores, refused = unpack(KEYS, 8)

local counted = run .. ':counted'
local left_out = run .. ':left_out'

local function attempts_of(name)
  return run .. ':attempts:' .. name
end

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

-- The number of the run's shards, which is written when enqueueing ends; until then, of those that are written.
local function all_shards()
  return tonumber(redis.call('HGET', run, 'shards') or redis.call('HLEN', shards))
end

-- The shards that are neither done nor failed. One that is in no place is open too, so such a run is never published as if
-- it were all.
local function open_shards()
  return all_shards() - redis.call('HLEN', receipts) - redis.call('SCARD', failed)
end

-- Whether each shard is known and in a place. A server that deletes keys loses some.
local function is_whole()
  local placed = redis.call('ZCARD', waiting) + redis.call('ZCARD', sent) + redis.call('ZCARD', running)
  return placed == open_shards() and redis.call('HLEN', shards) == all_shards()
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

-- The most workers that may score shards at once, or nil for any number.
local function max_workers()
  return tonumber(redis.call('HGET', run, 'max_workers'))
end

-- The pace of the run: the rows scored in each of the last thirty slots of ten seconds, in a ring of fields, and the number
-- of slots in which a worker held a shard. shardsift/fleet/ledger/results.py reads both.
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

-- The workers that score a shard of the run, but for this one: a table with each worker, and their number. A worker that only
-- stores the files of a shard is not among them, since it may score the next one meanwhile.
local function scoring_workers(but)
  local workers, count = {}, 0
  for _, name in ipairs(redis.call('ZRANGE', running, 0, -1)) do
    local owner, storing = unpack(redis.call('HMGET', attempts_of(name), 'owner', 'storing'))
    owner = owner or name
    if name ~= but and not storing and not workers[owner] then
      workers[owner] = true
      count = count + 1
    end
  end
  return workers, count
end

-- Add the time since the last note of this attempt to the time that workers have held shards of the run. A worker that
-- vanishes is counted until its last renewal, and one with two shards of the run once: `counted` has up to when. The time is at
-- most a lease, because the clock of Redis may have jumped.
local function note_time(lease_ms)
  local since, owner = unpack(redis.call('HMGET', attempts, 'noted_ms', 'owner'))
  if since then
    local counted_to = owner and redis.call('HGET', counted, owner) or 0
    local ms = math.max(0, math.min(now - math.max(since, counted_to), lease_ms))
    redis.call('HINCRBY', run, 'worker_ms', ms)
    if owner then redis.call('HSET', counted, owner, now) end
  end
  redis.call('HSET', attempts, 'noted_ms', now)
end

-- Note that an attempt has stored more of its work than any before it: crashes and errors are counted from here on, and of
-- crashes this attempt is the first. So work that advances between them is done in the end, and work that does not is failed soon.
local function note_advance(key)
  if tonumber(redis.call('HGET', key, 'crashes') or 0) > 1 then redis.call('HSET', key, 'crashes', 1) end
  redis.call('HDEL', key, 'errors')
end

-- Count the attempts that ended by an error or a crash since a shard was last done.
local function note_failed_attempt()
  redis.call('HINCRBY', run, 'failed_attempts', 1)
end

-- Record an attempt that ended without reporting why.
local function note_crash(key, error)
  note_failed_attempt()
  redis.call('HSET', key, 'error', error, 'traceback', '', 'worker', redis.call('HGET', key, 'owner') or '')
  redis.call('HDEL', key, 'rows', 'spared', 'storing', 'noted_ms', 'report')
end

-- Delete the record of a done shard's attempts, and its checkpoint.
local function forget_attempts(name)
  local bytes = redis.call('HGET', attempts_of(name), 'checkpoint_bytes')
  if bytes then redis.call('HINCRBY', run, 'checkpoint_bytes', 0 - bytes) end
  redis.call('DEL', attempts_of(name), run .. ':scores:' .. name)
end

-- Note that the receipts of the run changed. A publication of receipts that were read earlier is then not recorded.
local function receipts_changed()
  redis.call('HINCRBY', run, 'receipts_version', 1)
end

-- Reasons of errored rows, and fields that were left out, that are counted one by one. A scorer of a user's own may invent any
-- number of reasons, and the input has any number of fields.
local MOST_NAMES = 50

local function count_by_name(key, name, rows, others)
  local is_new = redis.call('HEXISTS', key, name) == 0
  if is_new and (rows < 0 or redis.call('HLEN', key) >= MOST_NAMES) then name = others end
  if redis.call('HINCRBY', key, name, rows) <= 0 then redis.call('HDEL', key, name) end
end

-- The bytes of a file, or the share of a shard's rows if the file has rows of other shards too.
local function share_of(file, rows)
  if file.rows <= rows then return file.size_bytes end
  return math.floor(file.size_bytes * rows / file.rows)
end

-- Add a receipt to the totals of the run, or with sign -1 remove it from them.
local function count_receipt(said, sign)
  for _, total in ipairs({'rows_in', 'rows_kept', 'rows_dropped', 'rows_errored'}) do
    redis.call('HINCRBY', run, total, 0 + sign * said[total]) -- 0 +: Redis does not accept Lua's -0 as an integer
  end
  for reason, rows in pairs(said.errors) do count_by_name(errored, reason, sign * rows, 'other reasons') end
  for field, rows in pairs(said.left_out or {}) do count_by_name(left_out, field, sign * rows, 'others') end
  local bytes = share_of(said.data, said.rows_kept) + share_of(said.scores, said.rows_in)
  redis.call('HINCRBY', run, 'stored_bytes', sign * bytes)
  local function count_scores(column, histogram)
    for bin, rows in pairs(histogram and histogram.rows_by_bin or {}) do
      redis.call('HINCRBY', histograms, bin .. ':' .. column, sign * rows)
    end
  end
  for _, scoring in ipairs(said.scorings) do count_scores(scoring.score_column, scoring.histogram) end
  -- The scores of labels that the filter names, by column: the places of the scoring and of the label, from 0.
  for column, place in pairs(cjson.decode(redis.call('HGET', run, 'charted') or '{}')) do
    count_scores(column, (said.scorings[place[1] + 1].label_histograms or {})[place[2] + 1])
  end
end

-- Record the receipt of a shard that is closed, and count it.
local function record_receipt(name, receipt)
  redis.call('HSET', receipts, name, receipt)
  count_receipt(cjson.decode(receipt), 1)
  receipts_changed()
end

-- Remove a done shard's receipt from the run and its totals. Returns the receipt, or false if the shard is not done.
local function forget_receipt(name)
  local receipt = redis.call('HGET', receipts, name)
  if not receipt then return false end
  count_receipt(cjson.decode(receipt), -1)
  redis.call('HDEL', receipts, name)
  redis.call('HDEL', run, 'published')
  receipts_changed()
  return receipt
end

-- Whether a shard is done, and its data file is "<staged path> <sha256>", or `which` is ''.
local function has_file(name, which)
  local receipt = redis.call('HGET', receipts, name)
  if not receipt or which == '' then return receipt end
  local data = cjson.decode(receipt).data
  return data.staged_path .. ' ' .. data.sha256 == which
end

-- Note where the time of an attempt went that has finished its shard, and its tokens.
local function note_work(made)
  for phase, seconds in pairs(made.seconds) do
    redis.call('HINCRBY', run, 'phase_ms:' .. phase, math.floor(seconds * 1000 + 0.5))
  end
  redis.call('HINCRBY', run, 'tokens', made.tokens)
end

-- The value that replaces the token of an ended attempt. It equals no token, so a late renewal cannot take the shard back.
local function ended(token)
  return 'ended ' .. token
end

local function end_token(key)
  redis.call('HSET', key, 'token', ended(redis.call('HGET', key, 'token')))
  redis.call('HDEL', key, 'rows', 'spared', 'storing', 'noted_ms', 'report')
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
  redis.call('PEXPIRE', refused, 86400000)
end
