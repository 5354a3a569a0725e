"""A whole fleet on one machine: an embedded Redis, workers and a finalizer, started for one run."""
