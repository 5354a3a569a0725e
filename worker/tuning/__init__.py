"""`worker tune`: find the token budget that is fastest for a model on this device. Knows no queue and no runs."""
