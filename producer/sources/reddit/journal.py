"""The pages that a collection has fetched, in a file beside its output. A killed collection goes on after the last of them.

A line is a page, appended and synced before the next one is asked for. A line that a crash has cut off is dropped.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fleet.errors import UsageError
from producer.sources.reddit.collection import Collection
from producer.sources.reddit.posts import Post


@dataclass(frozen=True, kw_only=True)
class Page:
    """Posts that follow each other in the listing of a subreddit."""

    subreddit: str
    posts: tuple[Post, ...]
    after: str | None  # Reddit's name of the place where the next page begins; None at the end of the listing


def journal_path(output: Path) -> Path:
    """Hidden, so that a run that reads the folder does not take it for an input."""
    return output.with_name(f".{output.name}.collecting")


class Journal:
    """`pages` are those of earlier commands and of this one. A journal without pages is deleted when it is closed."""

    def __init__(self, file: BinaryIO, path: Path, collection: Collection) -> None:
        self._file = file
        self._path = path
        self.pages = _read_pages(file, path, collection)
        if not file.tell():
            self._append(collection.as_json())

    def add(self, page: Page) -> None:
        self._append(json.dumps(asdict(page)))
        self.pages.append(page)

    def clear(self) -> None:
        """Its pages are in the output, or not wanted."""
        self.pages.clear()

    def close(self) -> None:
        if not self.pages:
            self._path.unlink()

    def _append(self, line: str) -> None:
        self._file.write(f"{line}\n".encode())
        self._file.flush()
        os.fsync(self._file.fileno())


@contextmanager
def opened_journal(output: Path, collection: Collection) -> Iterator[Journal]:
    """The journal of an output. Raises UsageError if another process has it, or if it is of another collection."""
    path = journal_path(output)
    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"Another command is collecting into {output}. Wait for it to end.") from error
        with closing(Journal(file, path, collection)) as journal:
            yield journal


def _read_pages(file: BinaryIO, path: Path, collection: Collection) -> list[Page]:
    """Leaves the file at the end of its last whole line, and without what a crash left after it."""
    file.seek(0)
    lines = file.read().splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    file.truncate(sum(map(len, lines)))
    file.seek(0, os.SEEK_END)
    if not lines:
        return []
    if lines[0].strip() != collection.as_json().encode():
        raise UsageError(
            f"{path} holds the beginning of another collection: {_shown(lines[0])}. Repeat that command to finish it, "
            "choose another --output, or delete the file."
        )
    try:
        return [_page(json.loads(line)) for line in lines[1:]]
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{path} is damaged. Delete it to begin again.") from error


def _page(line: dict[str, Any]) -> Page:
    posts = tuple(Post(**post) for post in line["posts"])
    return Page(subreddit=line["subreddit"], posts=posts, after=line["after"])


def _shown(line: bytes) -> str:
    try:
        return str(Collection(**json.loads(line)))
    except (ValueError, TypeError):
        return "one of another version of shardsift"
