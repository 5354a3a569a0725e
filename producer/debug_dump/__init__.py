"""`producer debug-dump`: one archive for a bug report, without secrets."""
