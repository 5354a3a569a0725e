"""The number of workers that open shards need, for people and for autoscalers."""
