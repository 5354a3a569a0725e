"""The control side: light, without torch."""
