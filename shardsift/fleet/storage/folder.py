"""An output in a folder, a bucket or anything that fsspec can write.

<output>/.shardsift/<run_id>/spec.json                    the run that this output belongs to
<output>/.shardsift/<run_id>/manifest.parquet             if several runs share the output: as this run found or published it
<output>/.shardsift/accepted.json                         changed input files that `producer retry` accepted
<output>/.shardsift/<run_id>/receipts/<shard>/<attempt>.json
<output>/.shardsift/<run_id>/staged/data/…/<attempt>      until published
<output>/.shardsift/<run_id>/checkpoints/data/<shard>.parquet/<name>   until published
<output>/{data,scores}/…  README.md  scores.png  manifest.parquet     published; the manifest comes last
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from shardsift.fleet.errors import OutputDamaged, PublishConflict, ShardError, TransientError, UsageError
from shardsift.fleet.run.receipt import OutputFile, Receipt
from shardsift.fleet.run.spec import RunSpec, data_path_of, disclosed_spec, scores_path_of
from shardsift.fleet.storage.errors import translated
from shardsift.fleet.storage.files import READERS, Files, hashed
from shardsift.fleet.storage.inspection import DATA_FOLDERS, Finding, Problem, StoredFile, files_of
from shardsift.fleet.storage.manifest import (
    Manifest,
    findings,
    is_outdated,
    last_manifest,
    read_manifest,
    replaced_files,
)
from shardsift.fleet.storage.output import (
    ACCEPTED_PATH,
    CARD_PATH,
    MANIFEST_PATH,
    AcceptedFiles,
    FileDigest,
    Output,
    Recovered,
    by_shard,
    digests,
    is_among,
    other_run,
    output_files,
    read_accepted,
    read_receipt,
    refuse_files_of_others,
)

WORKPLACE = ".shardsift"


class FolderOutput(Output):
    def __init__(self, uri: str, run_id: str) -> None:
        self.uri = uri
        self.run_id = run_id
        self._workplace = f"{WORKPLACE}/{run_id}"
        self._spec_path = f"{self._workplace}/spec.json"
        self._files = Files(uri)

    def check_free(self, spec: RunSpec) -> None:
        with translated(f"Looking at {self.uri}"):
            self._refuse_other_runs(spec)
            if not self._is_reserved and self.manifest() is None:
                refuse_files_of_others(self.uri, self._files.names_in(""), self._files.content(CARD_PATH))
                self._refuse_overlap()

    def reserve(self, spec: RunSpec, *, public: bool = False) -> None:
        try:
            with translated(f"Preparing the output {self.uri}"):
                self._files.create_bucket(public=public)
                self.check_free(spec)
                if not self._is_reserved:
                    if spec.extends and (there := self.manifest()):
                        self._write(_copy_path(self.run_id), there.to_parquet())
                    self._write(self._spec_path, disclosed_spec(spec).to_json())
                    self._withdraw_beside_others(spec)
        except ShardError as error:
            raise UsageError(f"{error} Choose an --output that can be written.") from error

    def reserve_state(self, spec: RunSpec) -> None:
        """Prepare this folder for receipts and checkpoints of a run whose output is elsewhere.

        Several runs may share the folder.
        """
        with translated(f"Preparing {self.uri}, the SHARDSIFT_STATE_URI"):
            self._files.create_bucket(public=False)
            self._write(f"{self._workplace}/state.json", disclosed_spec(spec).to_json())

    def withdraw(self) -> None:
        with translated(f"Giving up the output {self.uri}"):
            self._files.remove(self._workplace)

    def stage(self, file: Path, path: str, *, attempt: str) -> str:
        staged_path = f"{self._workplace}/staged/{path}/{attempt}"
        doing = f"Storing {path} in {self.uri}"
        with translated(doing):
            try:
                self._files.put(file, staged_path)
            except FileNotFoundError as error:
                if error.errno is None:  # from the Hub: the repository or bucket is gone
                    raise
                raise TransientError(f"{doing}: a finalizer has tidied its folder meanwhile.") from error
        return staged_path

    def store_receipt(self, receipt: Receipt) -> None:
        with translated(f"Storing the receipt of {receipt.shard} in {self.uri}"):
            self._write(self._receipt_path(receipt), receipt.to_json())

    def accepted(self) -> dict[str, AcceptedFiles]:
        with translated(f"Looking at {self.uri}"):
            files = read_accepted(self._files.content(ACCEPTED_PATH))
        return {files.run_id: files} if files else {}

    def accept(self, files: AcceptedFiles) -> None:
        with translated(f"Recording the accepted files of {self.run_id} in {self.uri}"):
            self._write(ACCEPTED_PATH, files.to_json())

    def recovered(self) -> Recovered:
        with translated(f"Reading the receipts in {self.uri}"):
            sizes = self._files.sizes(*DATA_FOLDERS, f"{self._workplace}/staged")
            manifest = self.manifest()
            listed = manifest.receipts_of(self.run_id) if manifest else ()
            published = {digest for receipt in listed for digest in digests(receipt)}
            whole, partial = [], []
            for _, receipts in by_shard([*self.stored_receipts(), *listed]):
                if chosen := self._whole(receipts, published, sizes):
                    whole.append(chosen)
                else:
                    partial.append(max(receipts, key=lambda receipt: _size_is_right(receipt.scores, sizes)))
        return Recovered(whole=tuple(whole), partial=tuple(partial))

    def store_checkpoint(self, shard: str, name: str, content: bytes) -> bool:
        with translated(f"Storing a checkpoint of {shard} in {self.uri}"):
            self._write(f"{self._checkpoint_folder(shard)}/{name}", content)
        return True

    def checkpoints(self, shard: str) -> dict[str, bytes]:
        with translated(f"Reading the checkpoints of {shard} in {self.uri}"):
            found = self._files.contents(self._checkpoints_of(shard))
            return {path.rpartition("/")[2]: content for path, content in found}

    def drop_checkpoints(self, shard: str) -> None:
        with translated(f"Removing the checkpoints of {shard} from {self.uri}"):
            for path in self._checkpoints_of(shard):
                self._files.remove(path)

    def manifest(self) -> Manifest | None:
        with translated(f"Reading {self.uri}/{MANIFEST_PATH}"):
            if manifest := read_manifest(self._files.content(MANIFEST_PATH)):
                return manifest
            copies = {
                run_id: read_manifest(self._files.content(_copy_path(run_id))) for run_id in _runs_in(self._files)
            }
        return last_manifest(copies)

    @contextmanager
    def open_file(self, file: OutputFile) -> Iterator[BinaryIO]:
        with translated(f"Reading {file.path} in {self.uri}"):
            path = file.staged_path if self._files.exists(file.staged_path) else file.path
            with self._files.open(path) as content:
                yield content

    def inspect(self, receipts: Sequence[Receipt], *, hashes: bool) -> list[Finding]:
        with translated(f"Looking at {self.uri}"):
            stored = {path: StoredFile(size_bytes=size) for path, size in self._files.sizes(*DATA_FOLDERS).items()}
            if hashes:
                ours = (file.path for file in files_of(receipts))
                stored = hashed(self._files, stored, ours)
            manifest, card = self._files.content(MANIFEST_PATH), self._files.content(CARD_PATH)
        return list(findings(self.run_id, receipts, stored, manifest, card, last=self.manifest))

    def has_staged(self, receipts: Sequence[Receipt]) -> bool:
        with translated(f"Looking at {self.uri}"):
            staged = self._files.sizes(f"{self._workplace}/staged")
        return any(file.staged_path in staged for file in files_of(receipts))

    def publish(
        self, receipts: Sequence[Receipt], documents: Mapping[str, bytes], *, parent: str, removed: Sequence[str] = ()
    ) -> str:
        with translated(f"Publishing {self.run_id} to {self.uri}"):
            staged = self._checked(receipts)
            before, after = self.manifest(), read_manifest(documents.get(MANIFEST_PATH))
            if is_outdated(before, after, self.run_id):
                raise PublishConflict(f"Another run was published in {self.uri} meanwhile.")
            for path in sorted({*removed, *replaced_files(before, after)}):
                self._files.remove(path)
            for shard, file in staged:
                self._move_into_place(shard, file)
            self._files.sync_folders(file.path for file in files_of(receipts))
            for path in sorted(documents, key=lambda path: path == MANIFEST_PATH):
                if path == MANIFEST_PATH and ((after and after.runs) or len(_runs_in(self._files)) > 1):
                    self._write(_copy_path(self.run_id), documents[path])
                self._write(path, documents[path])
            self._remove_staged(receipts)
        return self.head()

    def tidy(self, receipts: Sequence[Receipt]) -> None:
        with translated(f"Tidying up {self.uri}"):
            self._remove_staged(receipts)
            self._files.remove(f"{self._workplace}/checkpoints")

    # --- paths ------------------------------------------------------------------------------------------------------

    def _receipt_path(self, receipt: Receipt) -> str:
        attempt = receipt.data.staged_path.rpartition("/")[2]
        return f"{self._workplace}/receipts/{receipt.shard}/{attempt}.json"

    def _checkpoint_folder(self, shard: str) -> str:
        """Return the folder of a shard's checkpoints.

        It ends in .parquet. Otherwise, checkpoint `0` of a shard `a` would have the same path as the folder of a shard
        `a/0`.
        """
        return f"{self._workplace}/checkpoints/{data_path_of(shard)}"

    def _checkpoints_of(self, shard: str) -> list[str]:
        folder = self._checkpoint_folder(shard)
        return [path for path in self._files.sizes(folder) if path.rpartition("/")[0] == folder]

    def _is_staged(self, file: OutputFile) -> bool:
        return file.staged_path.startswith(f"{self._workplace}/staged/")

    # --- whose output this is ---------------------------------------------------------------------------------------

    @property
    def _is_reserved(self) -> bool:
        return self._files.exists(self._spec_path)

    def _refuse_other_runs(self, spec: RunSpec) -> None:
        others = [run_id for run_id in _runs_in(self._files) if run_id != self.run_id]
        if self._is_reserved and not others:
            return
        manifest = self.manifest()
        published = manifest.run_ids if manifest else ()
        if self.run_id in published:
            return
        if unpublished := [run_id for run_id in others if run_id not in published]:
            raise other_run(self.uri, unpublished[0], self._spec_of(unpublished[0]), spec)
        if manifest and not (self._is_reserved or manifest.grows_by(spec)):
            raise other_run(self.uri, manifest.run_id, manifest.spec, spec)

    def _refuse_overlap(self) -> None:
        """Raise UsageError if the output lies inside or around another run's. The data of both would be mixed up."""
        for files in self._files.neighbours(WORKPLACE, MANIFEST_PATH):
            with suppress(ShardError), translated(f"Looking at {files.root}"):  # skip an output that cannot be read
                manifest = read_manifest(files.content(MANIFEST_PATH))
                if runs := _runs_in(files) or ([manifest.run_id] if manifest else []):
                    raise UsageError(
                        f"The output {self.uri} lies inside or around {files.root}, the output of another run, {runs[0]}. "
                        "Choose another --output."
                    )

    def _withdraw_beside_others(self, spec: RunSpec) -> None:
        """Undo the reservation and raise UsageError if another run has reserved this output or is published in it.

        If two runs reserve at the same moment, at least one of them sees the other.
        """
        try:
            self._refuse_other_runs(spec)
        except UsageError:
            self._files.remove(self._spec_path)
            raise

    def _spec_of(self, run_id: str) -> RunSpec | None:
        with suppress(ValueError):
            return RunSpec.from_json(self._files.content(f"{WORKPLACE}/{run_id}/spec.json") or b"")
        return None

    # --- publishing -------------------------------------------------------------------------------------------------

    def _checked(self, receipts: Sequence[Receipt]) -> list[tuple[str, OutputFile]]:
        """Read and check all files. Returns the staged ones, which must be moved, each with its shard.

        Raises OutputDamaged if neither the staged nor the published copy of a file is intact.
        """
        files = files_of(receipts)
        with ThreadPoolExecutor(READERS) as readers:
            copies = dict(zip(files, readers.map(self._copy_of, files), strict=True))
        damaged: dict[str, str] = {}
        for receipt in receipts:
            for file in output_files(receipt):
                if finding := copies[file][1]:
                    damaged.setdefault(receipt.shard, str(finding))
        if damaged:
            raise OutputDamaged(damaged)
        return [(shard, file) for file, shard in files.items() if copies[file][0]]

    def _copy_of(self, file: OutputFile) -> tuple[bool, Finding | None]:
        """Return whether an intact copy is staged, and a finding if no intact copy is staged or published."""
        staged = self._files.problem(file, file.staged_path, hashes=True) if self._is_staged(file) else Problem.MISSING
        if staged is None:
            return True, None
        in_place = self._files.problem(file, file.path, hashes=True)
        if in_place is None:
            return False, None
        if staged is not Problem.MISSING:
            return False, Finding(path=file.staged_path, problem=staged)
        return False, Finding(path=file.path, problem=in_place)

    def _move_into_place(self, shard: str, file: OutputFile) -> None:
        try:
            self._files.move(file.staged_path, file.path)
        except FileNotFoundError as error:  # moved by another finalizer, which has also checked it
            if problem := self._files.problem(file, file.path, hashes=False):
                raise OutputDamaged({shard: str(Finding(path=file.path, problem=problem))}) from error

    def _remove_staged(self, receipts: Sequence[Receipt]) -> None:
        """Remove the staged files of published shards.

        Keeps the files of other shards: a failed shard may be retried, and its worker may stage files now.
        """
        files = {file.path for file in files_of(receipts)}
        files |= {path_of(receipt.shard) for receipt in receipts for path_of in (data_path_of, scores_path_of)}
        for path in sorted(files):
            self._files.remove(f"{self._workplace}/staged/{path}")  # another finalizer may do the same

    def _write(self, path: str, content: bytes) -> None:
        self._files.write(path, content, aside=f"{self._workplace}/aside/{uuid4().hex}")

    # --- receipts, to rebuild a ledger that has lost the run ------------------------------------------------------------

    def stored_receipts(self) -> Iterator[Receipt]:
        paths = [path for path in self._files.sizes(f"{self._workplace}/receipts") if path.endswith(".json")]
        for path, content in self._files.contents(paths):
            if receipt := read_receipt(content, self.run_id, source=path):
                yield receipt

    def _whole(
        self, receipts: Sequence[Receipt], published: set[FileDigest], sizes: Mapping[str, int]
    ) -> Receipt | None:
        """Choose a receipt whose files all exist, from all receipts of a shard. None if there is none.

        Prefers the published receipt, then one whose files are all staged. If there is neither, a publication was
        interrupted after it moved only some files. If several receipts then fit the file sizes, compares hashes.
        """
        there = [receipt for receipt in receipts if all(_size_is_right(file, sizes) for file in output_files(receipt))]
        for holds in (lambda receipt: is_among(receipt, published), lambda receipt: _is_staged_whole(receipt, sizes)):
            if chosen := next(filter(holds, there), None):
                return chosen
        if len(there) == 1:
            return there[0]
        return next(filter(lambda receipt: self._content_is_of(receipt, sizes), there), None)

    def _content_is_of(self, receipt: Receipt, sizes: Mapping[str, int]) -> bool:
        return all(
            file.staged_path in sizes or self._files.sha256(file.path) == file.sha256 for file in output_files(receipt)
        )


def _copy_path(run_id: str) -> str:
    return f"{WORKPLACE}/{run_id}/{MANIFEST_PATH}"


def _runs_in(files: Files) -> list[str]:
    return sorted(name for name in files.names_in(WORKPLACE) if files.exists(f"{WORKPLACE}/{name}/spec.json"))


def _size_is_right(file: OutputFile, sizes: Mapping[str, int]) -> bool:
    return file.size_bytes in (sizes.get(file.staged_path), sizes.get(file.path))


def _is_staged_whole(receipt: Receipt, sizes: Mapping[str, int]) -> bool:
    return all(sizes.get(file.staged_path) == file.size_bytes for file in output_files(receipt))
