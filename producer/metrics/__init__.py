"""Metrics of the fleet for Prometheus, read from the ledger when they are asked for. The finalizer serves them."""
