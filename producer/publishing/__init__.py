"""Publish a run exactly once, with its dataset card; of a run that goes on, save finished shards in waves."""
