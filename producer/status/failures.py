"""Tell failed attempts in a few lines, grouped by cause, so that one mistake in a hundred shards reads as one."""

import re
from collections.abc import Iterator, Sequence

from fleet.ledger import Failure
from fleet.process.wording import counted, first_of

_MOST_CAUSES = 5
_NAMED_SHARDS = 5
_PATH = re.compile(r"\S*/\S*")
_NUMBER = re.compile(r"\b(?![45]\d\d\b)\d[\d,.]*\b")  # an HTTP status tells causes apart: 403 is not 503


def failure_lines(failures: Sequence[Failure]) -> Iterator[str]:
    """List what failed, cause by cause."""
    return _lines(failures, one="failed", many="failed with one error")


def retry_lines(retries: Sequence[Failure]) -> Iterator[str]:
    """List what went wrong with shards that are tried again."""
    return _lines(retries, one="is tried again after it failed", many="are tried again after one error")


def _lines(failures: Sequence[Failure], *, one: str, many: str) -> Iterator[str]:
    causes = causes_of(failures)
    for first, *others in causes[:_MOST_CAUSES]:
        if not others:
            yield f"Shard {first.shard} {one}{_by(first)}: {first.error}"
            continue
        yield f"{counted(1 + len(others), 'shard')} {many}. {first.shard}{_by(first)}: {first.error}"
        yield f"  The others: {first_of([failure.shard for failure in others], _NAMED_SHARDS)}"
    rest = causes[_MOST_CAUSES:]
    if rest:
        yield f"And {counted(len(rest), 'other error')} of {counted(sum(map(len, rest)), 'shard')}: see --json."


def causes_of(failures: Sequence[Failure]) -> list[list[Failure]]:
    """Failures with the same error, apart from names, paths and numbers in it. The cause of most shards comes first."""
    groups: dict[str, list[Failure]] = {}
    for failure in failures:
        groups.setdefault(_without_details(failure), []).append(failure)
    return sorted(groups.values(), key=lambda group: -len(group))


def _by(failure: Failure) -> str:
    """The finalizer, which finds damaged outputs, has no worker's name."""
    return f" on {failure.worker} (attempt {failure.attempts})" if failure.worker else ""


def _without_details(failure: Failure) -> str:
    """The error with its shard, paths and numbers masked."""
    masked = re.sub(rf"(?<!\w){re.escape(failure.shard)}(?!\w)", "…", failure.error)
    return _NUMBER.sub("#", _PATH.sub("…", masked))
