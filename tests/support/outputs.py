"""Read a published output as its user would."""

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from shardsift.fleet.storage.hub_files import filesystem_of


def published_rows(output: Path, kind: str = "data") -> pa.Table:
    """Read all rows of `data/` or `scores/`, in the order of the file names."""
    return pa.concat_tables(
        [pq.read_table(file) for file in sorted((output / kind).rglob("*.parquet"))], promote_options="default"
    )


def data_digests(output: Path) -> dict[str, str]:
    """Return the sha256 of every published Parquet file except the manifest, by path."""
    files = [file for kind in ("data", "scores") for file in (output / kind).rglob("*.parquet")]
    return {str(file.relative_to(output)): file_sha256(file) for file in files}


def file_sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def manifest_lines(output: Path) -> list[dict[str, object]]:
    return list(pq.read_table(output / "manifest.parquet").to_pylist())


def visible(uri: str | Path) -> dict[str, bytes]:
    """Return the content of all files that a reader of the dataset sees, by path."""
    return Published(str(uri)).visible()


class Published:
    """The files of an output in a folder or a bucket, and ways to damage them."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._files, self._root = filesystem_of(uri)

    def read(self, path: str) -> bytes:
        return bytes(self._files.cat_file(self._at(path)))

    def write(self, path: str, content: bytes) -> None:
        self._files.makedirs(self._at(path).rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(self._at(path), content)

    def paths(self) -> set[str]:
        """List all files that a reader of the dataset sees."""
        found = {path.removeprefix(self._root).lstrip("/") for path in self._files.find(self._root)}
        return {path for path in found if not path.startswith(".shardsift/")}

    def visible(self) -> dict[str, bytes]:
        return {path: self.read(path) for path in self.paths()}

    def hidden_paths(self) -> set[str]:
        found = self._files.find(f"{self._root}/.shardsift")
        return {path.removeprefix(self._root).lstrip("/") for path in found}

    def delete(self, path: str) -> None:
        self._files.rm(self._at(path), recursive=True)

    def truncate(self, path: str) -> None:
        content = self.read(path)
        self.write(path, content[: len(content) // 2])

    def write_theirs(self, path: str) -> None:
        self.write(path, b"theirs")

    def zero(self, path: str) -> None:
        """Fill a file with zeros, as if its blocks had never reached the disk."""
        self.write(path, bytes(len(self.read(path))))

    def flip(self, path: str) -> None:
        content = bytearray(self.read(path))
        content[len(content) // 2] ^= 1
        self.write(path, bytes(content))

    def delete_all(self) -> None:
        self._files.rm(self._root, recursive=True)

    def leftovers(self) -> set[str]:
        """List the files that a publication must remove."""
        return {path for path in self.hidden_paths() if "/staged/" in path}

    def commits(self) -> list[set[str]]:
        """Return the paths that each commit has changed, newest first. Files and buckets have no commits."""
        return []

    def _at(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}"
