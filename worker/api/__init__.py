"""The Python API of the data side: scoring and training in the caller's process. `shardsift` exports it."""
