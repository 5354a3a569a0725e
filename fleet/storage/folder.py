"""An output in a folder or a bucket: anything that fsspec can write.

<output>/.shardsift/<run_id>/spec.json                    whose output this is
<output>/.shardsift/<run_id>/receipts/<shard>/<attempt>.json
<output>/.shardsift/<run_id>/staged/data/…/<attempt>      until published
<output>/.shardsift/<run_id>/checkpoints/<shard>/<name>   until published
<output>/{data,scores}/…  README.md  manifest.parquet     published; the manifest comes last
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import fsspec
from fsspec.core import url_to_fs

from fleet.disclosure import disclosed_spec
from fleet.errors import ShardError, TransientError, UsageError
from fleet.receipt import OutputFile, Receipt
from fleet.spec import RunSpec
from fleet.storage.errors import translated
from fleet.storage.inspection import DATA_FOLDERS, Finding, StoredFile, card_finding, compare
from fleet.storage.kept import FileDigest, by_shard, digests, is_among, read_receipt
from fleet.storage.manifest import manifest_finding, mark_of, receipts_listed
from fleet.storage.output import CARD_PATH, MANIFEST_PATH, Mark, output_files

_WORKPLACE = ".shardsift"
_READERS = 16  # a bucket answers in tens of milliseconds, and a run has thousands of receipts
_BUCKETS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}  # have no folders; makedirs would make a misspelt bucket
logger = logging.getLogger(__name__)


class FolderOutput:
    def __init__(self, uri: str, run_id: str) -> None:
        self.uri = uri
        self._run_id = run_id
        self._fs: fsspec.AbstractFileSystem
        try:
            self._fs, self._root = url_to_fs(uri)
        except (ImportError, ValueError) as error:  # a library that is not installed, or a protocol that nobody knows
            raise UsageError(f"The output {uri} cannot be used: {error}.") from error

    def reserve(self, spec: RunSpec) -> None:
        try:
            with translated(f"Preparing the output {self.uri}"):
                self._refuse_other_runs()
                self._write(f"{self._workplace}/spec.json", disclosed_spec(spec).to_json())
        except (ShardError, TransientError) as error:
            raise UsageError(f"{error} Choose an --output that can be written.") from error

    def stage(self, file: Path, path: str, *, attempt: str) -> str:
        staged_path = f"{self._workplace}/staged/{path}/{attempt}"
        with translated(f"Storing {path} in {self.uri}"):
            self._make_folder_of(staged_path)
            self._fs.put_file(str(file), self._at(staged_path))
        return staged_path

    def keep_receipt(self, receipt: Receipt) -> None:
        with translated(f"Storing the receipt of {receipt.shard} in {self.uri}"):
            self._write(self._receipt_path(receipt), receipt.to_json())

    def discard(self, receipt: Receipt) -> None:
        staged = [file.staged_path for file in output_files(receipt) if self._is_staged(file)]
        try:
            with translated(f"Removing an attempt at {receipt.shard} from {self.uri}"):
                for path in (self._receipt_path(receipt), *staged):
                    self._remove(path)
        except (ShardError, TransientError) as error:
            logger.warning("%s It goes when the run is published.", error)

    def receipts(self) -> Iterator[Receipt]:
        with translated(f"Reading the receipts in {self.uri}"):
            self._fs.invalidate_cache()
            listed = {digest for receipt in self._listed_receipts() for digest in digests(receipt)}
            sizes = self._sizes("data", "scores", f"{self._workplace}/staged")
            found = [receipt for receipt in self._kept_receipts() if _is_there(receipt, sizes)]
            chosen = [self._choose(receipts, listed, sizes) for _, receipts in by_shard(found)]
        yield from (receipt for receipt in chosen if receipt)

    def unsaved(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        return []

    def save(self, receipts: Sequence[Receipt]) -> None:
        """Staged files stay."""

    def keep_checkpoint(self, shard: str, name: str, content: bytes) -> bool:
        with translated(f"Storing a checkpoint of {shard} in {self.uri}"):
            self._write(f"{self._checkpoints_of(shard)}/{name}", content)
        return True

    def checkpoints(self, shard: str) -> dict[str, bytes]:
        found = {}
        with translated(f"Reading the checkpoints of {shard} in {self.uri}"):
            for path in self._files_in(self._checkpoints_of(shard)):
                with suppress(FileNotFoundError):  # another attempt may have finished the shard at this moment
                    found[path.rpartition("/")[2]] = self._fs.cat_file(self._at(path))
        return found

    def drop_checkpoints(self, shard: str) -> None:
        with translated(f"Removing the checkpoints of {shard} from {self.uri}"):
            for path in self._files_in(self._checkpoints_of(shard)):
                self._remove(path)

    def published(self) -> Mark | None:
        with translated(f"Reading {self.uri}/{MANIFEST_PATH}"):
            manifest = self._content(MANIFEST_PATH)
        return mark_of(manifest) if manifest is not None else None

    def inspect(self, receipts: Sequence[Receipt], *, hashes: bool) -> list[Finding]:
        with translated(f"Looking at {self.uri}"):
            self._fs.invalidate_cache()
            stored = {path: StoredFile(size_bytes=size) for path, size in self._sizes(*DATA_FOLDERS).items()}
            if hashes:
                stored |= self._hashed(receipts, stored)
            manifest = manifest_finding(self._content(MANIFEST_PATH), self._run_id, receipts)
            card = card_finding(self._content(CARD_PATH))
        return [*compare(receipts, stored), *(finding for finding in (manifest, card) if finding)]

    def head(self) -> str:
        return ""

    def publish(self, receipts: Sequence[Receipt], documents: Mapping[str, bytes], *, parent: str) -> str:
        with translated(f"Publishing {self._run_id} to {self.uri}"):
            for receipt in receipts:
                for file in output_files(receipt):
                    self._move_into_place(file.staged_path, file.path, size_bytes=file.size_bytes)
            for path in sorted(documents, key=lambda path: path == MANIFEST_PATH):
                self._write(path, documents[path])
            self._remove_staged(receipts)
        return self.head()

    def tidy(self) -> None:
        with translated(f"Tidying up {self.uri}"):
            self._remove(f"{self._workplace}/checkpoints")

    @property
    def _workplace(self) -> str:
        return f"{_WORKPLACE}/{self._run_id}"

    def _receipt_path(self, receipt: Receipt) -> str:
        attempt = receipt.data.staged_path.rpartition("/")[2]
        return f"{self._workplace}/receipts/{receipt.shard}/{attempt}.json"

    def _checkpoints_of(self, shard: str) -> str:
        return f"{self._workplace}/checkpoints/{shard}"

    def _at(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}"

    def _refuse_other_runs(self) -> None:
        runs = self._runs()
        others = sorted(runs - {self._run_id})
        if others:
            raise UsageError(
                f"The output {self.uri} holds the data of another run, {others[0]}. "
                "Choose another --output, or repeat that run's options to go on with it."
            )
        if not runs and any(self._fs.exists(self._at(path)) for path in ("data", "scores", MANIFEST_PATH)):
            raise UsageError(
                f"The output {self.uri} holds data that no run of shardsift wrote. Choose another --output."
            )

    def _runs(self) -> set[str]:
        """The runs that reserved this output. By listing, since the path may hold what a glob takes for a pattern."""
        if not self._fs.isdir(self._at(_WORKPLACE)):
            return set()
        paths = self._fs.ls(self._at(_WORKPLACE), detail=False)
        names = {str(path).rstrip("/").rpartition("/")[2] for path in paths}
        return {name for name in names if self._fs.exists(self._at(f"{_WORKPLACE}/{name}/spec.json"))}

    def _listed_receipts(self) -> list[Receipt]:
        """What the manifest of this run lists, where it is published."""
        manifest = self._content(MANIFEST_PATH)
        return receipts_listed(manifest, self._run_id) if manifest is not None else []

    def _kept_receipts(self) -> Iterator[Receipt]:
        paths = [path for path in self._sizes(f"{self._workplace}/receipts") if path.endswith(".json")]
        with ThreadPoolExecutor(_READERS) as readers:
            for path, content in zip(paths, readers.map(self._content, paths), strict=True):
                if content is not None and (receipt := read_receipt(content, self._run_id, source=path)):
                    yield receipt

    def _content(self, path: str) -> bytes | None:
        """None for a file that is not there, or was removed since it was listed."""
        try:
            return bytes(self._fs.cat_file(self._at(path)))
        except FileNotFoundError:
            return None

    def _choose(self, receipts: list[Receipt], listed: set[FileDigest], sizes: Mapping[str, int]) -> Receipt | None:
        """Of a shard's receipts whose files seem to be there, the one that holds.

        That is the published one; else one that is staged whole. A publication that died midway has moved files of one
        attempt, and another's may be of the same size: then only their content tells.
        """
        for holds in (lambda receipt: is_among(receipt, listed), lambda receipt: _is_staged_whole(receipt, sizes)):
            if chosen := next(filter(holds, receipts), None):
                return chosen
        if len(receipts) == 1:
            return receipts[0]
        return next(filter(lambda receipt: self._content_is_of(receipt, sizes), receipts), None)

    def _content_is_of(self, receipt: Receipt, sizes: Mapping[str, int]) -> bool:
        return all(
            file.staged_path in sizes or self._sha256(file.path) == file.sha256 for file in output_files(receipt)
        )

    def _hashed(self, receipts: Sequence[Receipt], stored: Mapping[str, StoredFile]) -> dict[str, StoredFile]:
        """The receipts' files that are there, with the sha256 of their content."""
        paths = [file.path for receipt in receipts for file in output_files(receipt) if file.path in stored]
        with ThreadPoolExecutor(_READERS) as readers:
            return {
                path: replace(stored[path], sha256=sha256)
                for path, sha256 in zip(paths, readers.map(self._sha256, paths), strict=True)
            }

    def _sha256(self, path: str) -> str:
        with self._fs.open(self._at(path), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _sizes(self, *folders: str) -> dict[str, int]:
        """Size by path of all files below these folders."""
        found = (self._fs.find(self._at(folder), detail=True) for folder in folders)
        return {self._path_of(name): info["size"] for files in found for name, info in files.items()}

    def _files_in(self, folder: str) -> list[str]:
        """The paths of the files in a folder, not in those below it; none where it is not there."""
        self._fs.invalidate_cache()
        try:
            entries = self._fs.ls(self._at(folder), detail=True)
        except FileNotFoundError:
            return []
        return [self._path_of(entry["name"]) for entry in entries if entry["type"] == "file"]

    def _path_of(self, name: str) -> str:
        """The path in the output of what the file system lists."""
        return name.removeprefix(self._root.rstrip("/")).lstrip("/")

    def _is_staged(self, file: OutputFile) -> bool:
        return file.staged_path.startswith(f"{self._workplace}/staged/")

    def _remove(self, path: str) -> None:
        """A file, or a folder with all that is in it; what is not there is removed."""
        with suppress(FileNotFoundError):
            self._fs.rm(self._at(path), recursive=True)

    def _write(self, path: str, content: bytes) -> None:
        """Aside first, under a name of its own, then into place, so that no reader meets half a file."""
        aside = f"{self._workplace}/aside/{uuid4().hex}"
        self._make_folder_of(aside)
        self._fs.pipe_file(self._at(aside), content)
        self._move(aside, path)

    def _move_into_place(self, staged_path: str, path: str, *, size_bytes: int) -> None:
        try:
            self._move(staged_path, path)
        except FileNotFoundError as error:  # moved before: by an earlier try, or by another finalizer at this moment
            if self._fs.exists(self._at(path)) and self._fs.size(self._at(path)) == size_bytes:
                return
            raise ShardError(
                f"{self.uri} has lost {staged_path}. Score the run again: producer retry {self._run_id} --all"
            ) from error

    def _move(self, source: str, target: str) -> None:
        self._make_folder_of(target)
        self._fs.mv(self._at(source), self._at(target))

    def _make_folder_of(self, path: str) -> None:
        protocols = (self._fs.protocol,) if isinstance(self._fs.protocol, str) else self._fs.protocol
        if not _BUCKETS & set(protocols):
            self._fs.makedirs(self._at(path).rpartition("/")[0], exist_ok=True)

    def _remove_staged(self, receipts: Sequence[Receipt]) -> None:
        """All attempts at the published shards, and no other: a shard that is retried may be staged just now."""
        for receipt in receipts:
            for file in output_files(receipt):
                self._remove(f"{self._workplace}/staged/{file.path}")  # another finalizer may remove it, too


def _is_there(receipt: Receipt, sizes: Mapping[str, int]) -> bool:
    """Whether each file is staged or published with its size."""
    return all(file.size_bytes in (sizes.get(file.staged_path), sizes.get(file.path)) for file in output_files(receipt))


def _is_staged_whole(receipt: Receipt, sizes: Mapping[str, int]) -> bool:
    return all(sizes.get(file.staged_path) == file.size_bytes for file in output_files(receipt))
