"""The values that describe a run to both producer and worker: spec, scorings, filter, receipt."""
