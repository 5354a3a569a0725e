"""The data side: Parquet in, models, scores out."""
