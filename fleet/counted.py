"""Format a count with its noun: `1 shard`, `8 shards`."""


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
