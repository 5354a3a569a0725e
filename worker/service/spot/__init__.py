"""Learn from the cloud that it takes this spot machine back. Knows no queue, no shard and no torch."""
