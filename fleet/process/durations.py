"""Durations as users write them: `90s`, `10m`, `2h`."""

import re

from fleet.errors import UsageError

_SECONDS = {"s": 1, "m": 60, "h": 3600}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smh])", re.ASCII)


def parse_duration(text: str) -> float:
    """The seconds of a duration. Raises UsageError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a duration. Write seconds, minutes or hours, such as 90s, 10m or 2h.")
    return float(match[1]) * _SECONDS[match[2]]


def shown_duration(seconds: float) -> str:
    """For example `45 s`, `10 min`, `2 h 10 min`, `30 h`."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:,.0f} s"
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes and hours < 10 else f"{round(seconds / 3600):,} h"
