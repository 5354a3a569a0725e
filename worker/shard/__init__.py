"""The life of one shard: read, score, filter, write, stage. Imports no Celery, Redis or torch."""
