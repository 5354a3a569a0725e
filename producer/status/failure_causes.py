"""Summarise failed attempts in one line for each cause, however many shards it affects."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from shardsift.fleet.ledger import Failure
from shardsift.fleet.process.wording import counted

Cause: TypeAlias = tuple[str, ...]  # the clauses of an error, with names, places and numbers masked

_MOST_CAUSES = 5
_MOST_CHARACTERS = 360  # of an error
_VALUE = r'(?<=\bis\ )"(?:[^"\\]|\\.)*"'  # a quoted value in an error of shardsift/fleet/inputs
_CLAUSE = re.compile(rf"((?:{_VALUE}|.)+?(?:(?<=[;.!?])(?= )|$))")
_ENDS = re.compile(r";(?= [A-Z]|$)")  # end of a shortened list
_PLACE = re.compile(r"(?:line|row) #")
_REST = "and # more"  # of a list
_DETAIL = re.compile(
    rf"""{_VALUE}
    | \S*/\S*                                                     # a path, a URI or a worker
    | [\w.-]+\.(?:parquet|jsonl|ndjson|json|csv|tsv|gz|zst|arrow)\b  # a file
    | \b(?!(?:(?<=answered\ )|(?<=status\ )|(?<=code\ )|(?<=HTTP\ )|(?<=\())[45]\d\d\b)  # 403 is not 503, but any other
      \d[\d_,.-]*\b                                                # number does not tell causes apart
    """,
    re.VERBOSE,
)
_PLURAL = re.compile(r"(?<=# )(\w+)s\b")
_BAD_ROWS = re.compile(r"([\d,]+) rows? (?:of [\d,]+ )?cannot be read")  # from an error of shardsift/fleet/inputs


def failure_lines(failures: Sequence[Failure]) -> Iterator[str]:
    return _cause_lines(failures, one="failed", many="failed")


def retry_lines(retries: Sequence[Failure]) -> Iterator[str]:
    return _cause_lines(
        retries, one="is tried again after a failed attempt", many="are tried again after failed attempts"
    )


def _cause_lines(failures: Sequence[Failure], *, one: str, many: str) -> Iterator[str]:
    causes, said = list(causes_of(failures).values()), set[str]()
    for cause in causes[:_MOST_CAUSES]:
        first = min(cause, key=lambda failure: len(failure.error))
        cause_itself, *more = _clauses(first).values()
        error = _ENDS.sub(".", " ".join([cause_itself, *(clause for clause in more if clause not in said)]))
        said.update(clause for clause in more if not _PLACE.match(_masked(first, clause)))
        workers = {failure.worker for failure in cause}
        on = f" on {first.worker}" if first.worker and len(workers) == 1 else ""
        if len(cause) == 1:
            yield f"Shard {first.shard} {one}{on}: {_cut(error)}"
        else:
            yield f"{counted(len(cause), 'shard')} {many}{on}{_bad_rows(cause)}, such as {first.shard}: {_cut(error)}"
    rest = causes[_MOST_CAUSES:]
    if rest:
        shards = counted(sum(map(len, rest)), "shard")
        yield f"And {counted(len(rest), 'other error')} of {shards}: `producer status RUN --json` lists all."


def causes_of(failures: Sequence[Failure]) -> dict[Cause, list[Failure]]:
    """Group failures by error, ignoring names, paths and numbers. The cause with the most shards comes first."""
    groups: dict[Cause, list[Failure]] = {}
    for failure in failures:
        groups.setdefault(tuple(_clauses(failure)), []).append(failure)
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))


def _bad_rows(cause: Sequence[Failure]) -> str:
    found = [_BAD_ROWS.search(failure.error) for failure in cause]
    numbers = [int(one[1].replace(",", "")) for one in found if one]
    return f" with {counted(sum(numbers), 'row')} that cannot be read" if len(numbers) == len(cause) else ""


def _clauses(failure: Failure) -> dict[str, str]:
    """Split an error into clauses, keyed by their masked text. Keeps only the first clause about a line or row."""
    error = " ".join(failure.error.split()).removeprefix(f"Shard {failure.shard}: ").removeprefix(f"{failure.shard}: ")
    found, has_place = dict[str, str](), False
    for clause in map(str.strip, _CLAUSE.findall(error)):
        said = _masked(failure, clause).rstrip(";.")
        is_place = _PLACE.match(said) is not None
        if said not in found and said != _REST and not (is_place and has_place):
            found[said] = clause
        has_place |= is_place
    return found or {"": "the reason is not known."}


def _masked(failure: Failure, text: str) -> str:
    """Replace names, paths and numbers by `#`, because they differ between shards with the same cause."""
    names = "|".join(map(re.escape, (failure.shard, failure.shard.rpartition("/")[2])))
    masked = re.sub(rf"(?<!\w)(?:{names})(?!\w)", "#", _DETAIL.sub("#", text))
    return _PLURAL.sub(r"\1", masked)


def _cut(error: str) -> str:
    return textwrap.shorten(error, _MOST_CHARACTERS, placeholder=" …")
