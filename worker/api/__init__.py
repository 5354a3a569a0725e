"""The Python API of the data side: scoring and training in the process of the caller. `shardsift` exports it."""
