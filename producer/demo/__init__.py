"""Demo data made on the spot from English that comes with Python. Knows nothing of models, queues or runs."""
