"""Helpers that tests share: real Redis, real processes, real small models. Tests make their own assertions."""
