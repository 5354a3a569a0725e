"""What producer and worker must agree on. Knows neither side, and no torch."""
