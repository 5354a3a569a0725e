"""Flower, the fleet's window."""
