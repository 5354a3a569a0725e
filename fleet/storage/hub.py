"""An output in a dataset repository of the Hugging Face Hub.

A worker uploads its files as blobs that no commit names yet; the finalizer makes them one commit, with manifest and
card, sending none of their bytes. The client does not retry a commit, and one whose answer was lost may have landed:
so whoever publishes looks at the manifest first (`published`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from huggingface_hub import CommitOperationAdd, HfApi, HfFileSystem
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
from huggingface_hub.lfs import UploadInfo

from fleet.errors import PublishConflict, ShardError, TransientError, UsageError
from fleet.receipt import OutputFile, Receipt
from fleet.spec import RunSpec
from fleet.storage.errors import translated
from fleet.storage.output import MANIFEST_PATH, Mark, output_files

_PREFIX = "hf://datasets/"
_PRECONDITION_FAILED = 412
_MISSING_BLOB = "LFS pointer pointed to a file that does not exist"  # the Hub's wording, with status 400


class HubOutput:
    def __init__(self, uri: str, run_id: str) -> None:
        self.uri = uri
        self._run_id = run_id
        self._repo_id = repo_id_of(uri)
        self._api = HfApi()

    def reserve(self, spec: RunSpec) -> None:
        try:
            with translated(f"Preparing the output {self.uri}"):
                self._create_repo()
                self._refuse_other_runs()
        except (ShardError, TransientError) as error:
            raise UsageError(f"{error} The output must be a dataset repository that HF_TOKEN can write.") from error

    def stage(self, file: Path, path: str, *, attempt: str) -> str:
        """Upload a blob. The Hub drops blobs that no commit names after about a day."""
        addition = CommitOperationAdd(path, str(file))
        addition._upload_mode = "lfs"  # never a regular file, whose bytes would travel in the commit
        with translated(f"Uploading {path} to {self.uri}"):
            self._api.preupload_lfs_files(self._repo_id, [addition], repo_type="dataset")
        return path

    def keep_receipt(self, receipt: Receipt) -> None:
        """The Hub has no place outside commits; the ledger alone holds receipts until they are published."""

    def published(self) -> Mark | None:
        with translated(f"Reading {self.uri}/{MANIFEST_PATH}"):
            if not self._api.file_exists(self._repo_id, MANIFEST_PATH, repo_type="dataset"):
                return None
            filesystem = HfFileSystem(skip_instance_cache=True)
            with filesystem.open(f"{self.uri}/{MANIFEST_PATH}", "rb") as manifest:
                return Mark.read_from(manifest)

    def head(self) -> str:
        with translated(f"Reading {self.uri}"):
            return str(self._api.repo_info(self._repo_id, repo_type="dataset").sha)

    def publish(self, receipts: Sequence[Receipt], documents: Mapping[str, bytes], *, parent: str) -> str:
        additions = [_uploaded(file) for receipt in receipts for file in output_files(receipt)]
        additions += [CommitOperationAdd(path, content) for path, content in documents.items()]
        with translated(f"Publishing {self._run_id} to {self.uri}"):
            try:
                return self._commit(additions, parent)
            except HfHubHTTPError as error:
                if error.response is not None and error.response.status_code == _PRECONDITION_FAILED:
                    raise PublishConflict(
                        f"{self.uri} got another commit while {self._run_id} was published."
                    ) from error
                if _MISSING_BLOB in str(error):
                    raise ShardError(
                        f"{self.uri}: the Hub has dropped files of {self._run_id} that waited too long for their commit; "
                        f"it keeps them about a day. Score the run again: producer retry {self._run_id} --all"
                    ) from error
                raise

    def _commit(self, additions: list[CommitOperationAdd], parent: str) -> str:
        commit = self._api.create_commit(
            self._repo_id,
            additions,
            repo_type="dataset",
            commit_message=f"Publish run {self._run_id}",
            parent_commit=parent,
        )
        return str(commit.oid)

    def _create_repo(self) -> None:
        try:
            self._api.repo_info(self._repo_id, repo_type="dataset")
        except RepositoryNotFoundError:
            self._api.create_repo(self._repo_id, repo_type="dataset", exist_ok=True)
        self._api.auth_check(self._repo_id, repo_type="dataset", write=True)

    def _refuse_other_runs(self) -> None:
        mark = self.published()
        if mark and mark.run_id != self._run_id:
            raise UsageError(
                f"The output {self.uri} holds the data of another run, {mark.run_id}. Choose another --output."
            )
        if mark is None and self._holds_data():
            raise UsageError(
                f"The output {self.uri} holds data that no run of shardsift wrote. Choose another --output."
            )

    def _holds_data(self) -> bool:
        entries = self._api.list_repo_tree(self._repo_id, repo_type="dataset")
        return any(entry.path in ("data", "scores", MANIFEST_PATH) for entry in entries)


def repo_id_of(uri: str) -> str:
    """The `<user>/<name>` of an output URI. Raises UsageError for any other form."""
    repo_id = uri.removeprefix(_PREFIX).rstrip("/")
    if not uri.startswith(_PREFIX) or repo_id.count("/") != 1 or "@" in repo_id:
        raise UsageError(f"An output on the Hub is written hf://datasets/<user>/<name>, not {uri}.")
    return repo_id


def _uploaded(file: OutputFile) -> CommitOperationAdd:
    """The operation for a blob that a worker uploaded, rebuilt from its receipt.

    These are the fields that the client itself sets on upload; tests/integration/test_hub_output.py holds it to that.
    """
    addition = CommitOperationAdd(file.path, b"")
    addition.upload_info = UploadInfo(size=file.size_bytes, sample=b"", sha256=bytes.fromhex(file.sha256))
    addition._upload_mode = "lfs"
    addition._is_uploaded = True
    addition._should_ignore = False
    return addition
