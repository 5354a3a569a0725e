"""What the scores of a run say: how they are spread, what each threshold would keep, and rows around a threshold."""
