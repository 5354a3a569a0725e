-- The beginning of every script: the keys of a run, the clock of Redis, and functions that several scripts use. A shard
-- is in exactly one of `waiting`, `sent`, `running`, `failed` and `receipts` (of done shards), which is its state.
local run, shards, waiting, sent, running, failed, receipts = unpack(KEYS)
local histograms, errored, attempts, scores, refused = unpack(KEYS, 8)

local counted = run .. ':counted'
local left_out = run .. ':left_out'

local function attempts_of(name)
  return run .. ':attempts:' .. name
end

-- Return the time in milliseconds. No other code in the scripts reads a clock, so a test can replace this function.
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local now = now_ms()

local NEVER_TRIED = 0 -- score in `waiting` of a shard without an attempt; other shards have the time when they are due

local function is_paused()
  return redis.call('HEXISTS', run, 'paused') == 1
end

-- Count the run's shards. The number is written when enqueueing ends; before, count those that are written so far.
local function all_shards()
  return tonumber(redis.call('HGET', run, 'shards') or redis.call('HLEN', shards))
end

-- Count the shards that are neither done nor failed. A shard that has lost its state counts as open, so that its run is
-- not published without it.
local function open_shards()
  return all_shards() - redis.call('HLEN', receipts) - redis.call('SCARD', failed)
end

-- Return whether each shard is known and has a state. A server that deletes keys may lose some.
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

-- Let a shard wait again after its message was used up or removed. `key` is the key of its attempts.
local function wait_for_message(name, key)
  wait(name, redis.call('EXISTS', key) == 1 and now or NEVER_TRIED)
end

-- Return how many workers may score shards at the same time; nil for no limit.
local function max_workers()
  return tonumber(redis.call('HGET', run, 'max_workers'))
end

-- The pace of the run: the rows scored in each of the last thirty slots of ten seconds, in a ring of fields, and the
-- number of all slots in which a worker held a shard. shardsift/fleet/ledger/results.py reads both.
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

-- Note how many rows of a shard are scored so far. Rows that this attempt took from the checkpoint count only once.
local function note_rows(key, rows)
  local counted = tonumber(redis.call('HGET', key, 'counted') or 0)
  local more = math.max(0, tonumber(rows) - counted)
  if more > 0 then redis.call('HSET', key, 'counted', rows) end
  note_pace(more)
end

-- Find the workers that score shards of the run, except for the shard `but`: a table of workers, and their number.
-- Leaves out workers that only store the files of a shard, because they may score the next one.
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

-- Add the time since this attempt's last note to the time for which workers have held shards of the run. A worker that
-- vanishes counts until its last renewal. A worker with two shards counts once, because `counted` has the time up to
-- which it is counted. At most one lease is added, because the clock of Redis may have jumped.
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

-- Restart the counts of crashes and errors, because an attempt has stored more of its work than any before it. The
-- attempt itself counts as a crash until it ends. So a shard that advances between crashes gets done; others fail soon.
local function note_advance(key)
  if tonumber(redis.call('HGET', key, 'crashes') or 0) > 1 then redis.call('HSET', key, 'crashes', 1) end
  redis.call('HDEL', key, 'errors')
end

-- Count attempts that ended by an error or a crash since a shard was last done.
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

-- Note that the receipts of the run changed, so that a publication of earlier receipts is not recorded.
local function receipts_changed()
  redis.call('HINCRBY', run, 'receipts_version', 1)
end

-- Limit of the reasons of errored rows, and of the fields left out, that are counted by name. A user's own scorer may
-- give any number of reasons, and the input may have any number of fields.
local MOST_NAMES = 50

local function count_by_name(key, name, rows, others)
  local is_new = redis.call('HEXISTS', key, name) == 0
  if is_new and (rows < 0 or redis.call('HLEN', key) >= MOST_NAMES) then name = others end
  if redis.call('HINCRBY', key, name, rows) <= 0 then redis.call('HDEL', key, name) end
end

-- Return the bytes of a file or, if the file also has rows of other shards, the share of this shard's rows.
local function share_of(file, rows)
  if file.rows <= rows then return file.size_bytes end
  return math.floor(file.size_bytes * rows / file.rows)
end

-- Add a receipt to the totals of the run, or subtract it with sign -1.
local function count_receipt(said, sign)
  for _, total in ipairs({'rows_in', 'rows_kept', 'rows_dropped', 'rows_errored'}) do
    redis.call('HINCRBY', run, total, 0 + sign * said[total]) -- 0 +: Redis does not accept Lua's -0 as an integer
  end
  redis.call('HINCRBY', run, 'duplicates', 0 + sign * (tonumber(said.duplicates) or 0)) -- null if not looked for
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
  -- Score columns of single labels that the filter names → indices of the scoring and of the label, from 0.
  for column, place in pairs(cjson.decode(redis.call('HGET', run, 'charted') or '{}')) do
    count_scores(column, (said.scorings[place[1] + 1].label_histograms or {})[place[2] + 1])
  end
end

-- Record the receipt of a closed shard, and count it.
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

-- Return whether a shard is done and, unless `which` is '', its data file is `which`: "<staged path> <sha256>".
local function has_file(name, which)
  local receipt = redis.call('HGET', receipts, name)
  if not receipt or which == '' then return receipt end
  local data = cjson.decode(receipt).data
  return data.staged_path .. ' ' .. data.sha256 == which
end

-- Note the time of each phase, and the tokens, of an attempt that has finished its shard.
local function note_work(made)
  for phase, seconds in pairs(made.seconds) do
    redis.call('HINCRBY', run, 'phase_ms:' .. phase, math.floor(seconds * 1000 + 0.5))
  end
  redis.call('HINCRBY', run, 'tokens', made.tokens)
end

-- Replaces the token of an ended attempt. It equals no token, so that a late renewal cannot take the shard back.
local function ended(token)
  return 'ended ' .. token
end

local function end_token(key)
  redis.call('HSET', key, 'token', ended(redis.call('HGET', key, 'token')))
  redis.call('HDEL', key, 'rows', 'spared', 'storing', 'noted_ms', 'report')
end

-- Return whether the run has this shard. After Redis lost a run, enqueueing writes its shards again in batches.
local function is_known(name)
  return redis.call('HEXISTS', shards, name) == 1
end

-- Return whether the holder of this token may write: if the token is the shard's newest, or if it is newer than all
-- tokens in the ledger and no other worker holds the shard, because then Redis restarted from an older state.
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
