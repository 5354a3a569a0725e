"""`worker start`: run the workers of one machine, one per GPU. Light: imports no torch and no Celery."""
