"""The life of one shard: read, score, filter, write, stage. Knows no Celery, no Redis and no torch."""
