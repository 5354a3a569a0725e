"""The scoring core against the ways it replaces: same texts, same model, same run."""
