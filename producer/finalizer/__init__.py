"""The finalizer sweeps the ledger and publishes runs whose shards are all done. Any number may run at once."""
