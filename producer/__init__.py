"""The control side. Never imports torch."""
