"""What a cloud says when it takes a machine back."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, kw_only=True)
class Notice:
    """`action` is the cloud's word in lower case; `seconds_left` till the machine goes, None where nobody can tell."""

    cloud: str
    action: str
    seconds_left: float | None


def seconds_until(time: str | None, parsed: Callable[[str], datetime], *, promised: float) -> float:
    """0 where the time has passed; what the cloud promises where it cannot be read, since the notice still counts."""
    try:
        return max(0.0, (parsed(time or "") - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):  # TypeError: it has no time zone
        return promised
