"""Publish a run exactly once, with its dataset card. Before that, save its finished shards in waves."""
