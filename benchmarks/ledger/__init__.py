"""Measure the ledger's latency and Redis memory with a long run and a large fleet of simulated workers."""
