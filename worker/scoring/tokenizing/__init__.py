"""Turn texts of any Arrow type into flat token ids. Knows nothing of models or batches."""
