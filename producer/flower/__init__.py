"""Flower: the web UI of the fleet."""
