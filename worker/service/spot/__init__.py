"""Watch for the cloud's notice that it reclaims this spot machine. Knows no queue, no shard and no torch."""
