"""The workers of one machine: one per GPU, started, restarted, replaced and stopped. Light: no torch, no Celery."""
