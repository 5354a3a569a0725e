"""Values that describe a run, on which producer and worker agree: spec, scorings, filter, receipt."""
