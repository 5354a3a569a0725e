"""From texts of any Arrow kind to flat token ids. Knows nothing of models or batches."""
