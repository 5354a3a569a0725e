"""Format a count with its noun: `1 shard`, `8 shards`; and a list of names by its first ones."""

from collections.abc import Sequence


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def first_of(names: Sequence[str], most: int) -> str:
    """The first names: `a, b and 7 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")
