"""Train a classifier. Knows nothing of queues."""
