"""Failed attempts in a few lines, grouped by cause, so that one mistake in a hundred shards reads as one."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleet.counted import counted, first_of
from fleet.ledger import Failure

_MOST_CAUSES = 5
_NAMED_SHARDS = 5
_TRACEBACK_LINES = 8
_PATH = re.compile(r"\S*/\S*")
_NUMBER = re.compile(r"\b(?![45]\d\d\b)\d[\d,.]*\b")  # an HTTP status tells causes apart: 403 is not 503
_ERROR = re.compile(r"[\w.]+: ")  # begins the message below a traceback
_OURS = ("fleet.", "worker.")  # modules whose errors say enough without a traceback


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Shards with the same error, apart from names, paths and numbers in it."""

    failures: tuple[Failure, ...]

    @property
    def first(self) -> Failure:
        return self.failures[0]

    @property
    def others(self) -> list[str]:
        return [failure.shard for failure in self.failures[1:]]

    @property
    def traceback(self) -> list[str]:
        return unexpected_traceback(self.first)


def unexpected_traceback(failure: Failure) -> list[str]:
    """The last lines of its traceback. None if the error is one of ours, or if a process died without one."""
    lines = failure.traceback.rstrip().splitlines()
    errors = [line for line in lines if _ERROR.match(line)]
    return [] if not errors or errors[-1].startswith(_OURS) else lines[-_TRACEBACK_LINES:]


def causes_of(failures: Sequence[Failure]) -> list[Cause]:
    """The cause of most shards first."""
    groups: dict[str, list[Failure]] = {}
    for failure in failures:
        groups.setdefault(_without_details(failure), []).append(failure)
    causes = [Cause(failures=tuple(group)) for group in groups.values()]
    return sorted(causes, key=lambda cause: -len(cause.failures))


def failure_lines(failures: Sequence[Failure]) -> Iterator[str]:
    """What failed, cause by cause, with one traceback of an unexpected error."""
    causes = causes_of(failures)
    for cause in causes[:_MOST_CAUSES]:
        yield from _failed(cause)
    yield from _more(causes)
    yield from _one_traceback(causes)


def retry_lines(retries: Sequence[Failure]) -> Iterator[str]:
    """What went wrong with shards that are tried again by themselves."""
    causes = causes_of(retries)
    wait = "waits" if len(retries) == 1 else "wait"
    yield f"{counted(len(retries), 'shard')} {wait} for another attempt. {_last_error(causes[0])}"
    for cause in causes[1:_MOST_CAUSES]:
        yield f"  {_last_error(cause)}"
    yield from _more(causes)
    yield from _one_traceback(causes)


def _failed(cause: Cause) -> Iterator[str]:
    first = cause.first
    if not cause.others:
        yield f"Shard {first.shard} failed{_by(first)}: {first.error}"
        return
    shards = counted(len(cause.failures), "shard")
    yield f"{shards} failed with one error. {first.shard}{_by(first)}: {first.error}"
    yield f"  The others: {first_of(cause.others, _NAMED_SHARDS)}"


def _last_error(cause: Cause) -> str:
    how_often = f" ({counted(len(cause.failures), 'shard')})" if cause.others else ""
    first = cause.first
    return f"Shard {first.shard} on {first.worker}, attempt {first.attempts}: {first.error}{how_often}"


def _by(failure: Failure) -> str:
    """The finalizer, which finds damaged outputs, has no worker's name."""
    return f" on {failure.worker} (attempt {failure.attempts})" if failure.worker else ""


def _more(causes: Sequence[Cause]) -> Iterator[str]:
    rest = causes[_MOST_CAUSES:]
    if rest:
        shards = sum(len(cause.failures) for cause in rest)
        yield f"And {counted(len(rest), 'other error')} of {counted(shards, 'shard')}: see --json."


def _one_traceback(causes: Sequence[Cause]) -> Iterator[str]:
    """Of the most frequent unexpected error."""
    unexpected = next((cause for cause in causes if cause.traceback), None)
    if unexpected:
        yield f"  The traceback of {unexpected.first.shard} ends with these lines; --json has it whole:"
        yield from (f"    {line}" for line in unexpected.traceback)


def _without_details(failure: Failure) -> str:
    """The error with its shard, paths and numbers masked."""
    masked = re.sub(rf"(?<!\w){re.escape(failure.shard)}(?!\w)", "…", failure.error)
    return _NUMBER.sub("#", _PATH.sub("…", masked))
