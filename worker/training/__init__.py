"""Fit a classifier. Knows nothing of queues or runs."""
