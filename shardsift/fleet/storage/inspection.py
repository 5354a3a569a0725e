"""Compare the files of an output with its receipts.

Knows nothing of folders or the Hub: an output lists its files, and this module finds what is wrong with them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from shardsift.fleet.run.receipt import OutputFile, Receipt

DATA_FOLDERS = ("data", "scores")
_FRONT_MATTER = re.compile(rb"\A\s*---\n.*?\n---\s*(?=\n|\Z)", re.DOTALL)


class Problem(StrEnum):
    MISSING = "missing"
    SIZE = "size"
    SHA256 = "sha256"
    FOREIGN = "foreign"  # no receipt of the run names the file
    UNREADABLE = "unreadable"
    EDITED = "edited"  # a card with another text, which is left to the dataset's owner


_SENTENCES = {
    Problem.MISSING: "is missing",
    Problem.SIZE: "has changed since it was written",
    Problem.SHA256: "has changed since it was written",
    Problem.FOREIGN: "is not a file of this run",
    Problem.UNREADABLE: "cannot be read",
    Problem.EDITED: "has changed since it was published",
}
_DETAILS = {Problem.SIZE: "its size differs", Problem.SHA256: "its sha256 differs"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A path that differs from what was published. `shard` is None for the manifest, the card and foreign files."""

    path: str
    shard: str | None = None
    problem: Problem
    detail: str = ""  # a clause with more detail, such as "it is empty"

    @property
    def is_damage(self) -> bool:
        return self.problem is not Problem.EDITED

    @property
    def is_mendable(self) -> bool:
        """Whether publishing the run again repairs this finding. Foreign files and edited cards are left alone."""
        return self.is_damage and self.problem is not Problem.FOREIGN

    @property
    def sentence(self) -> str:
        detail = self.detail or _DETAILS.get(self.problem)
        return _SENTENCES[self.problem] + (f" ({detail})" if detail else "")

    def __str__(self) -> str:
        return f"{self.path} {self.sentence}"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredFile:
    size_bytes: int
    sha256: str | None = None  # None if the content was not read


def compare(receipts: Sequence[Receipt], stored: Mapping[str, StoredFile]) -> Iterator[Finding]:
    """Find what is wrong with data and scores files: first the receipts' files, in order, then foreign files.

    `stored` has every file below `data/` and `scores/`, by path. A file that holds several shards gives one finding,
    which names the first of them.
    """
    foreign = set(stored)
    for file, shard in each_file(receipts):
        foreign.discard(file.path)
        if problem := problem_of(file, stored.get(file.path)):
            yield Finding(path=file.path, shard=shard, problem=problem)
    for path in sorted(foreign):
        yield Finding(path=path, problem=Problem.FOREIGN)


def each_file(receipts: Iterable[Receipt]) -> Iterator[tuple[OutputFile, str]]:
    """Yield each file of the receipts once, in the order of the receipts, with the first shard that has rows in it."""
    seen: set[str] = set()
    for receipt in receipts:
        for file in (receipt.data, receipt.scores):
            if (copy := f"{file.sha256} {file.staged_path}") not in seen:
                seen.add(copy)
                yield file, receipt.shard


def files_of(receipts: Iterable[Receipt]) -> dict[OutputFile, str]:
    return dict(each_file(receipts))


def problem_of(file: OutputFile, stored: StoredFile | None) -> Problem | None:
    if stored is None:
        return Problem.MISSING
    if stored.size_bytes != file.size_bytes:
        return Problem.SIZE
    return Problem.SHA256 if stored.sha256 not in (None, file.sha256) else None


def has_text(card: bytes) -> bool:
    """Return whether a card has text after its front matter. The card that the Hub writes for a new repository has none."""
    return bool(_FRONT_MATTER.sub(b"", card).strip())


def is_readable_card(card: bytes) -> bool:
    try:
        return has_text(card) and "\0" not in card.decode()
    except UnicodeDecodeError:
        return False


def lines_of(found: Sequence[object], *, limit: int = 10) -> list[str]:
    """Return a line for each of the first `limit` findings, then a line with the number of further ones, if any."""
    more = len(found) - limit
    return [*map(str, found[:limit])] + ([f"and {more:,} more"] if more > 0 else [])
