"""An output in a dataset repository of the Hugging Face Hub.

Workers upload files as blobs that no commit refers to yet. The finalizer publishes them with manifest and card in one
commit to main, or to the branch or pull request that the output names. Very many files take several commits, the last
with the manifest. The Hub drops blobs that no commit refers to after about a day, so during a long run the finalizer
saves them in commits on a branch of the run.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from huggingface_hub import CommitOperationAdd, get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.hf_api import RepoFile

from shardsift.fleet.errors import OutputDamaged, OutputTaken, PublishConflict, ShardError, UsageError
from shardsift.fleet.run.receipt import OutputFile, Receipt
from shardsift.fleet.run.spec import RunSpec, data_path_of
from shardsift.fleet.storage.errors import translated
from shardsift.fleet.storage.folder import FolderOutput
from shardsift.fleet.storage.hub_commit import commit
from shardsift.fleet.storage.hub_files import HubApi, HubFiles
from shardsift.fleet.storage.inspection import DATA_FOLDERS, Finding, StoredFile
from shardsift.fleet.storage.manifest import Manifest, findings, read_manifest, replaced_files
from shardsift.fleet.storage.output import (
    ACCEPTED_PATH,
    CARD_PATH,
    MANIFEST_PATH,
    AcceptedFiles,
    Output,
    Recovered,
    by_shard,
    other_run,
    read_accepted,
    refuse_files_of_others,
)
from shardsift.fleet.storage.run_branch import MAIN, PULL_REQUEST, RunBranch

# `@main` and a commit are refused: main is written without @, and a commit is not a branch.
_PLACE = re.compile(rf"hf://datasets/([^/@]+/[^/@]+)(?:@(?!{MAIN}$|[0-9a-f]{{40}}$)([\w.-]+|{PULL_REQUEST}\d+))?/?")
_PUBLISH = "Publish run "  # begins the titles of commits with a manifest
SHARDS_A_COMMIT = 5_000  # with two files each; the client's documentation gives 25,000 files as the limit


class HubOutput(Output):
    """An output in a dataset repository. Staged files are blobs that no commit refers to, so readers do not see them.

    Until they are committed, the Hub may drop them, and their receipts are only in the ledger and, if it is given, in the
    folder `state`.
    """

    def __init__(self, uri: str, run_id: str, state: FolderOutput | None = None) -> None:
        self.uri = uri
        self.run_id = run_id
        self._state = state
        self._repo_id, self._target = place_of(uri)
        self._title = f"{_PUBLISH}{run_id}"
        self._api = HubApi()
        self._files = HubFiles(skip_instance_cache=True)
        self._branch = RunBranch(self._api, self._repo_id, run_id, self._target)

    def check_free(self, spec: RunSpec) -> None:
        with translated(f"Looking at {self.uri}"), suppress(RepositoryNotFoundError, RevisionNotFoundError):
            published = self._published_runs(spec)
            if self.run_id not in published:
                self._refuse_reservation_of(self._branch.reserved_by_other(published))

    def reserve(self, spec: RunSpec, *, public: bool = False) -> None:
        if self._state:
            self._state.reserve_state(spec)
        try:
            with translated(f"Preparing the output {self.uri}"):
                self._create_repo(public=public)
                self._branch.create_target()
                published = self._published_runs(spec)
                if self.run_id not in published:
                    self._refuse_reservation_of(self._branch.reserve(spec, published))
        except ShardError as error:
            raise UsageError(f"{error} The output must be a dataset repository that HF_TOKEN can write.") from error

    def withdraw(self) -> None:
        with translated(f"Giving up the output {self.uri}"):
            self._branch.delete()

    def stage(self, file: Path, path: str, *, attempt: str) -> str:
        """Upload a blob. The Hub drops it after about a day unless a commit refers to it."""
        addition = CommitOperationAdd(path, str(file))
        addition._upload_mode = "lfs"  # not "regular", which would send the bytes with the commit
        with translated(f"Uploading {path} to {self.uri}"):
            self._api.preupload_lfs_files(self._repo_id, [addition], repo_type="dataset", revision=self._target)
        return path

    def has(self, path: str, sha256: str) -> bool:
        with translated(f"Looking for {path} in {self.uri}"):
            return (path, sha256) in self._branch.digests_at(self._target, [path])

    def store_receipt(self, receipt: Receipt) -> None:
        if self._state:
            self._state.store_receipt(receipt)

    def store_checkpoint(self, shard: str, name: str, content: bytes) -> bool:
        return self._state is not None and self._state.store_checkpoint(shard, name, content)

    def checkpoints(self, shard: str) -> dict[str, bytes]:
        return self._state.checkpoints(shard) if self._state else {}

    def drop_checkpoints(self, shard: str) -> None:
        if self._state:
            self._state.drop_checkpoints(shard)

    def accepted(self) -> dict[str, AcceptedFiles]:
        """Read the changed input files that `producer retry` accepted, by run.

        Reads them from the target branch and from each run's own branch. A run's branch may have an old copy of another
        run's record, which is ignored.
        """
        found = {}
        with translated(f"Looking at {self.uri}"), suppress(RepositoryNotFoundError):
            for name, head in {self._target: self._target, **self._branch.all_of_runs()}.items():
                files = read_accepted(self._content(ACCEPTED_PATH, revision=head))
                if files and name in (self._target, f"shardsift/{files.run_id}"):
                    found[files.run_id] = files
        return found

    def accept(self, files: AcceptedFiles) -> None:
        with translated(f"Recording the accepted files of {self.run_id} in {self.uri}"):
            self._branch.write(ACCEPTED_PATH, files.to_json(), message=f"Accept changed files of {self.run_id}")

    def recovered(self) -> Recovered:
        """Find the receipts of shards that are published, saved on the run's branch, or stored in `state`.

        Saves the shards from `state` to the branch now, and leaves out those of them whose blobs the Hub has dropped.
        """
        with translated(f"Reading the receipts in {self.uri}"):
            manifest = self.manifest()
            listed = manifest.receipts_of(self.run_id) if manifest else ()
            published = self._branch.of_those_in(self._target, listed)
            # After a merge, a shard's rows are in the file of an earlier shard, which replaces the file of its worker.
            chosen = {
                shard: max(found, key=lambda receipt: receipt.data.path != data_path_of(receipt.shard))
                for shard, found in by_shard(reversed(self._branch.receipts()))
            }
            chosen |= {receipt.shard: receipt for receipt in published}
            if self._state:
                others = [receipt for receipt in self._state.stored_receipts() if receipt.shard not in chosen]
                chosen |= {receipt.shard: receipt for receipt in self._saved_now(others)}
            partial = [receipt for receipt in listed if receipt.shard not in chosen]
        return Recovered(whole=tuple(chosen[shard] for shard in sorted(chosen)), partial=tuple(partial))

    def _saved_now(self, receipts: list[Receipt]) -> list[Receipt]:
        try:
            self._branch.save(receipts)
        except OutputDamaged as damage:
            return [receipt for receipt in receipts if receipt.shard not in damage.damaged]
        return receipts

    def unsaved(self, receipts: Sequence[Receipt]) -> Sequence[Receipt]:
        with translated(f"Looking for files of {self.run_id} in {self.uri}"):
            return self._branch.lacking(receipts)

    def save(self, receipts: Sequence[Receipt]) -> None:
        damaged: dict[str, str] = {}
        with translated(f"Saving shards of {self.run_id} on a branch of {self.uri}"):
            for start in range(0, len(receipts), SHARDS_A_COMMIT):
                try:
                    self._branch.save(receipts[start : start + SHARDS_A_COMMIT])
                except OutputDamaged as damage:
                    damaged |= damage.damaged
        if damaged:
            raise OutputDamaged(damaged)

    def manifest(self) -> Manifest | None:
        with translated(f"Reading {self.uri}/{MANIFEST_PATH}"):
            return self._manifest()

    def inspect(self, receipts: Sequence[Receipt], *, hashes: bool) -> list[Finding]:
        """Inspect the output. Always compares hashes, because the Hub lists the sha256 of each file."""
        with translated(f"Looking at {self.uri}"):
            stored = {path: file for folder in DATA_FOLDERS for path, file in self._files_in(folder)}
            manifest, card = self._content(MANIFEST_PATH), self._content(CARD_PATH)
        return list(findings(self.run_id, receipts, stored, manifest, card, last=self.manifest))

    @contextmanager
    def open_file(self, file: OutputFile) -> Iterator[BinaryIO]:
        """Open a file from the run's branch, otherwise from the target branch. Uncommitted blobs cannot be read.

        Requests nothing but this file, because the Hub allows far more downloads than other requests.
        """
        with translated(f"Reading {file.path} in {self.uri}"):
            commit = self._commit_with(file, self._branch.name) or self._commit_with(file, self._target)
            if commit is None:
                raise ShardError(
                    f"{file.path} is not in {self.uri} as it was written, and not on the branch of {self.run_id}"
                )
            path = f"datasets/{self._repo_id}@{commit}/{file.path}"
            with self._files.open(path, "rb", size=file.size_bytes) as content:
                yield content

    def _commit_with(self, file: OutputFile, branch: str) -> str | None:
        url = hf_hub_url(self._repo_id, file.path, repo_type="dataset", revision=branch)
        with suppress(EntryNotFoundError, RevisionNotFoundError):
            found = get_hf_file_metadata(url, retry_on_errors=True)
            return found.commit_hash if found.etag == file.sha256 else None
        return None

    def head(self) -> str:
        with translated(f"Reading {self.uri}"):
            return str(self._api.repo_info(self._repo_id, repo_type="dataset", revision=self._target).sha)

    def publish(
        self, receipts: Sequence[Receipt], documents: Mapping[str, bytes], *, parent: str, removed: Sequence[str] = ()
    ) -> str:
        """Publish in one commit, or in several if there are very many shards.

        If a blob is missing, the Hub refuses the commit and does not say which blob. This method then commits the
        shards to the run's branch in ever smaller parts, and raises OutputDamaged with the shards whose blobs the Hub
        has dropped. If it has dropped none, raises PublishConflict, so that the caller inspects the output again and
        retries.
        """
        with translated(f"Publishing {self.run_id} to {self.uri}"):
            if accepted := self.accepted().get(self.run_id):  # because the branch will be removed
                documents = {**documents, ACCEPTED_PATH: accepted.to_json()}
            removed = sorted({*removed, *self._replaced(documents, parent)})
            commit_to_target = partial(commit, self._api, self._repo_id, to=self._target)
            try:
                *parts, last = self._parts(receipts, parent)
                for part in parts:
                    parent = commit_to_target(part, {}, message=f"A part of run {self.run_id}", parent=parent)
                return commit_to_target(last, documents, message=self._title, parent=parent, removed=removed)
            except OutputDamaged as damage:
                refused = [receipt for receipt in receipts if receipt.shard in damage.damaged]
                self._branch.save(refused)  # raises OutputDamaged with the shards whose blobs the Hub has dropped
                raise PublishConflict(f"{self.uri} now has all files of {self.run_id}.") from damage

    def _parts(self, receipts: Sequence[Receipt], parent: str) -> list[Sequence[Receipt]]:
        """Split the shards into one part per commit, because the Hub refuses commits of very many files.

        If there are several parts, leaves out shards whose files are already in the commit `parent`.
        """
        if len(receipts) <= SHARDS_A_COMMIT:
            return [receipts]
        lacking = self._branch.not_in(parent, receipts)
        starts = range(0, max(1, len(lacking)), SHARDS_A_COMMIT)
        return [lacking[start : start + SHARDS_A_COMMIT] for start in starts]

    def _replaced(self, documents: Mapping[str, bytes], parent: str) -> list[str]:
        if MANIFEST_PATH not in documents:
            return []
        before = read_manifest(self._content(MANIFEST_PATH, revision=parent))
        paths = replaced_files(before, read_manifest(documents[MANIFEST_PATH]))
        return [path for path, _ in self._branch.digests_at(parent, paths)]

    def tidy(self, receipts: Sequence[Receipt]) -> None:
        with translated(f"Removing the branch of {self.run_id} from {self.uri}"):
            self._branch.delete()

    def _content(self, path: str, *, revision: str | None = None) -> bytes | None:
        root = f"datasets/{self._repo_id}@{revision or self._target}"
        with suppress(FileNotFoundError):
            return bytes(HubFiles(skip_instance_cache=True).cat_file(f"{root}/{path}"))
        return None

    def _files_in(self, folder: str) -> Iterator[tuple[str, StoredFile]]:
        with suppress(EntryNotFoundError):
            for entry in self._api.list_repo_tree(
                self._repo_id, folder, recursive=True, repo_type="dataset", revision=self._target
            ):
                if isinstance(entry, RepoFile):
                    # All our files are LFS files.
                    sha256 = entry.lfs.sha256 if entry.lfs else f"blob {entry.blob_id}"
                    yield entry.path, StoredFile(size_bytes=entry.size, sha256=sha256)

    def _manifest(self) -> Manifest | None:
        """Read the manifest. If it is lost or damaged, read it from the last commit that published a run, if there is one."""
        if manifest := read_manifest(self._content(MANIFEST_PATH)):
            return manifest
        commits = self._api.list_repo_commits(self._repo_id, repo_type="dataset", revision=self._target)
        last = next((commit.commit_id for commit in commits if commit.title.startswith(_PUBLISH)), None)
        return read_manifest(self._content(MANIFEST_PATH, revision=last)) if last else None

    def _create_repo(self, *, public: bool) -> None:
        try:
            self._api.repo_info(self._repo_id, repo_type="dataset")
        except RepositoryNotFoundError:
            self._api.create_repo(self._repo_id, repo_type="dataset", private=not public)
        self._api.auth_check(self._repo_id, repo_type="dataset", write=True)

    def _published_runs(self, spec: RunSpec) -> tuple[str, ...]:
        """Return the ids of the runs that are published here.

        Raises UsageError if the repository holds files of others, or another run that this run may neither extend nor replace.
        """
        manifest = self._manifest()
        if manifest is None:
            if not self._branch.is_reserved():
                entries = self._api.list_repo_tree(self._repo_id, repo_type="dataset", revision=self._target)
                names = [entry.path for entry in entries]
                refuse_files_of_others(self.uri, names, self._content(CARD_PATH))
            return ()
        if self.run_id in manifest.run_ids or manifest.gives_way_to(spec) or manifest.grows_by(spec):
            return manifest.run_ids
        raise other_run(self.uri, manifest.run_id, manifest.spec, spec)

    def _refuse_reservation_of(self, other: str | None) -> None:
        if other:
            raise OutputTaken(
                f"The output {self.uri} is reserved by another run, {other}, which is not published yet. Choose another "
                f"--output or, if that run was abandoned, delete the branch shardsift/{other} of the repository.",
                run_id=other,
            )


def place_of(uri: str) -> tuple[str, str]:
    """Split an output URI into the repository `<user>/<name>` and the branch. Raises UsageError for other URIs."""
    found = _PLACE.fullmatch(uri)
    if found is None:
        raise UsageError(
            "An output on the Hub is written hf://datasets/<user>/<name>, with @<branch> or @refs/pr/<number> to publish "
            f"beside main, or hf://buckets/<user>/<name>, not {uri}."
        )
    return found[1], found[2] or MAIN
