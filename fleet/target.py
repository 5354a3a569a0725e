"""Tell whether an argument is a run id, or the path or URI of a run's output."""

from pathlib import Path


def is_place(target: str) -> bool:
    """Whether this is a path or URI. A run id has no slash and does not begin with a dot or a tilde."""
    return "/" in target or target.startswith((".", "~")) or Path(target).exists()
