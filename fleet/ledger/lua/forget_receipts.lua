-- Forget the receipts of a run that is not whole, and the totals over them. It is half enqueued until the caller has added its
-- shards and the receipts again. Does nothing to other runs. May run twice.
if redis.call('HEXISTS', run, 'spec') == 1 and is_whole() then return end
redis.call('UNLINK', receipts, histograms, errored)
redis.call('HDEL', run, 'complete', 'shards', 'rows_in', 'rows_kept', 'rows_dropped', 'rows_errored', 'stored_bytes')
