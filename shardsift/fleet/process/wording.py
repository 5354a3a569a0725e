"""Format and parse counts, lists, durations, sizes and targets for users."""

import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from shardsift.fleet.errors import UsageError

_SECONDS = {"s": 1, "m": 60, "h": 3600}
_BYTES = {"TB": 10**12, "GiB": 2**30, "GB": 10**9, "MiB": 2**20, "MB": 10**6, "kB": 10**3, "B": 1}
_COMMAND = re.compile(r"(?<=: )(?:producer|worker|shardsift) .+$")
_LABEL = re.compile(r" *(?:[a-z]+ {2,})?")  # the label that begins a line of `producer status`
_MOST_FIELDS = 10  # that a line names
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smh])", re.ASCII)


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def first_of(names: Sequence[str], most: int) -> str:
    """List the first names: `a, b and 7 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def wrapped(line: str, width: int) -> str:
    """Wrap a line at words. A command at its end is not broken, so that it can be copied."""
    kept = _COMMAND.sub(lambda command: command[0].replace(" ", "\xa0"), line)  # textwrap does not break these spaces
    label = _LABEL.match(line)
    indent = " " * len(label[0] if label else "") or "  "
    filled = textwrap.fill(kept, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return filled.replace("\xa0", " ")


def left_out_line(fields: Mapping[str, int]) -> str:
    """List the input's fields that the output lacks, with row counts: `meta.by (38 rows) and 2 more`."""
    return first_of([f"{name} ({counted(rows, 'row')})" for name, rows in fields.items()], _MOST_FIELDS)


def duplicates_line(rows: int) -> str:
    """Return ` (12 of them duplicates)`, to append to the number of dropped rows. Empty for 0."""
    return f" ({rows:,} of them duplicates)" if rows else ""


def place_taken(run_id: str) -> str:
    """Return advice for a run that was cancelled because the run `run_id` took its output."""
    return f"Run {run_id} of the same output has taken its place. To do both, enqueue this one with another --output."


def parse_duration(text: str) -> float:
    """Parse a duration such as `10m` into seconds. Raises UsageError if the text is not a duration."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a duration. Write seconds, minutes or hours, such as 90s, 10m or 2h.")
    return float(match[1]) * _SECONDS[match[2]]


def shown_duration(seconds: float) -> str:
    """Format a duration: `45 s`, `10 min`, `2 h 10 min`, `30 h`."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:,.0f} s"
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes and hours < 10 else f"{round(seconds / 3600):,} h"


def shown_bytes(size: int) -> str:
    """Format a size without rounding: `512MB`."""
    return next(f"{size // of_unit}{unit}" for unit, of_unit in _BYTES.items() if size % of_unit == 0)


# Distinguish run ids, paths and URLs.

_URL = re.compile(r"(?:[a-z][a-z0-9+.-]*::)*[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_FILE = "file://"


def is_url(place: str) -> bool:
    """Return whether this is a URL. `./a://b`, `a::b` and file:// URLs count as paths."""
    return bool(_URL.match(place)) and not place.startswith(_FILE)


def local_path(place: str) -> Path:
    """Return an absolute path. A leading `~` becomes the home folder. `./~` stays a file called `~`."""
    return Path(os.path.expanduser(place.removeprefix(_FILE))).absolute()  # noqa: PTH111 - so that `./~` stays


def is_place(target: str) -> bool:
    """Return whether this is a path or URI, not a run id.

    A path or URI has a slash, begins with a dot or a tilde, or exists on this machine.
    """
    return "/" in target or target.startswith((".", "~")) or Path(target).exists()
