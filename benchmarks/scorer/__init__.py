"""Compare the scoring core with what it replaces: same texts, same model, same run."""
