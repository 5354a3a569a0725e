"""Write the archive of `producer debug-dump`: every file of it goes through the cleaner."""

import io
import json
import os
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fleet.errors import UsageError
from fleet.settings import Settings
from producer.debug_dump.secrets import Cleaner


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One file of the archive. `content` is a text, or a value for a JSON file."""

    name: str
    content: Any


def write_archive(entries: Iterator[Entry], settings: Settings, output: Path) -> Iterator[str]:
    """Write the entries without secrets to a new file that only this user can read. Yields their names as they are written."""
    cleaner = Cleaner(settings)
    folder = output.name.removesuffix(".tar.gz")
    with _new_file(output) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for entry in entries:
            content = _content(entry, cleaner)
            about = tarfile.TarInfo(f"{folder}/{cleaner.text(entry.name)}")
            about.size, about.mtime, about.mode = len(content), int(time.time()), 0o600
            archive.addfile(about, io.BytesIO(content))
            yield f"{about.name} ({len(content):,} bytes)"


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that only this user can read. It is removed if the block fails. Raises UsageError if it cannot be created."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UsageError(f"{path} cannot be created: {error.strerror}. Choose another --output.") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _content(entry: Entry, cleaner: Cleaner) -> bytes:
    if isinstance(entry.content, str):
        return cleaner.text(entry.content).encode()
    return json.dumps(cleaner.value(entry.content), indent=2, default=str).encode()
