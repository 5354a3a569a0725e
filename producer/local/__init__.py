"""The whole fleet on one machine: an embedded Redis, worker and finalizer processes, and the run that they do."""
