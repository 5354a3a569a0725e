"""The data side: reads input files, scores their rows with models, and writes output files."""
