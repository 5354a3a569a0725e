"""Benchmarks: compare shardsift with what it replaces. No service imports this package."""
