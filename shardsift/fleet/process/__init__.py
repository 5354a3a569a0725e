"""Shared by every process of a fleet: settings, logs, the broker, child processes, the command line."""
