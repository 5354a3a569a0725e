"""The contract between producer and worker. Knows nothing of either side, and never imports torch."""
