"""Show how the scores of a run are spread, and rows around a threshold."""
