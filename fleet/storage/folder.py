"""An output in a folder or a bucket: anything that fsspec can write.

<output>/.shardsift/<run_id>/spec.json                    whose output this is
<output>/.shardsift/<run_id>/receipts/<shard>.json
<output>/.shardsift/<run_id>/staged/data/…/<attempt>      until published
<output>/{data,scores}/…  README.md  manifest.parquet     published; the manifest comes last
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import fsspec
from fsspec.core import url_to_fs

from fleet.errors import ShardError, TransientError, UsageError
from fleet.receipt import Receipt
from fleet.spec import RunSpec
from fleet.storage.errors import translated
from fleet.storage.output import MANIFEST_PATH, Mark, output_files

_WORKPLACE = ".shardsift"
_BUCKETS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}  # have no folders; makedirs would make a misspelt bucket


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
                self._write(f"{self._workplace}/spec.json", spec.to_json())
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
            self._write(f"{self._workplace}/receipts/{receipt.shard}.json", receipt.to_json())

    def published(self) -> Mark | None:
        with translated(f"Reading {self.uri}/{MANIFEST_PATH}"):
            if not self._fs.exists(self._at(MANIFEST_PATH)):
                return None
            with self._fs.open(self._at(MANIFEST_PATH), "rb") as manifest:
                return Mark.read_from(manifest)

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

    @property
    def _workplace(self) -> str:
        return f"{_WORKPLACE}/{self._run_id}"

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
                with suppress(FileNotFoundError):  # another finalizer may remove it at this moment
                    self._fs.rm(self._at(f"{self._workplace}/staged/{file.path}"), recursive=True)
