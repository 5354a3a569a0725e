"""`worker tune`: find the fastest token budget for a model on this device. Knows nothing of queues or runs."""
