"""A cloud's notice that it reclaims a spot machine."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, kw_only=True)
class Notice:
    """`action` is the cloud's own term in lower case. `seconds_left` is None if the time of the stop is not known."""

    cloud: str
    action: str
    seconds_left: float | None


def seconds_until(time: str | None, parsed: Callable[[str], datetime], *, promised: float) -> float:
    """The seconds until that time, or 0 if it has passed. If it cannot be parsed, the time that the cloud promises."""
    try:
        return max(0.0, (parsed(time or "") - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):  # TypeError: the time has no time zone
        return promised
