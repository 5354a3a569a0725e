"""The branch of a run on the Hub: where its finished shards are committed before the run is published.

The Hub drops blobs that no commit names after about a day. Each *wave* is one commit of the files of some shards and of
`.shardsift/<run_id>/receipts/<digest>.jsonl`, which holds their receipts. Readers of the dataset see `main` alone.
Methods raise the client's errors, and those that they name.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from huggingface_hub import CommitOperationAdd, HfApi, HfFileSystem
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError
from huggingface_hub.hf_api import RepoFile

from fleet.receipt import Receipt
from fleet.storage.hub_commit import commit, uploaded
from fleet.storage.kept import FileDigest, is_among, read_receipt
from fleet.storage.output import output_files

MAIN = "main"
_PATHS_A_REQUEST = 500


class RunBranch:
    def __init__(self, api: HfApi, repo_id: str, run_id: str) -> None:
        self.name = f"shardsift/{run_id}"
        self._api = api
        self._repo_id = repo_id
        self._run_id = run_id
        self._receipts_folder = f".shardsift/{run_id}/receipts"

    def head(self) -> str | None:
        """The branch's commit; None where no wave was due yet."""
        return self._heads().get(self.name)

    def lacking(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Those whose files are in no commit: neither in the branch's, nor, where there is no branch, in main's."""
        heads = self._heads()
        return self._not_in(heads.get(self.name, heads[MAIN]), receipts)

    def save(self, receipts: Sequence[Receipt]) -> None:
        """Commit those that are in no commit yet, as one wave. May run twice; raises PublishConflict and ShardError."""
        heads = self._heads()  # before the look: a wave committed after it is refused as a conflict, never doubled
        parent = heads.get(self.name, heads[MAIN])
        wave = self._not_in(parent, receipts)
        if not wave:
            return
        if self.name not in heads:
            self._api.create_branch(
                self._repo_id, branch=self.name, revision=parent, repo_type="dataset", exist_ok=True
            )
        commit(
            self._api,
            self._repo_id,
            [*uploaded(wave), self._document(wave)],
            message=f"A wave of {len(wave)} shards of {self._run_id}",
            run_id=self._run_id,
            to=self.name,
            parent=parent,
        )

    def receipts(self) -> list[Receipt]:
        """The receipts of all waves, as far as their files are still those of the branch."""
        head = self.head()
        return self.of_those_in(head, list(self._kept_receipts(head))) if head else []

    def of_those_in(self, revision: str, receipts: Sequence[Receipt]) -> list[Receipt]:
        """The receipts whose files a commit has."""
        digests = self._digests(revision, receipts)
        return [receipt for receipt in receipts if is_among(receipt, digests)]

    def delete(self) -> None:
        """Remove the branch, where there is one. May run twice, and in two places at once."""
        if self.head() is None:
            return
        try:
            self._api.delete_branch(self._repo_id, branch=self.name, repo_type="dataset")
        except HfHubHTTPError:
            if self.head() is not None:
                raise

    def _heads(self) -> dict[str, str]:
        """Commit by branch."""
        refs = self._api.list_repo_refs(self._repo_id, repo_type="dataset")
        return {branch.name: branch.target_commit for branch in refs.branches}

    def _not_in(self, revision: str, receipts: Sequence[Receipt]) -> list[Receipt]:
        digests = self._digests(revision, receipts)
        return [receipt for receipt in receipts if not is_among(receipt, digests)]

    def _digests(self, revision: str, receipts: Iterable[Receipt]) -> set[FileDigest]:
        """What a commit has at the paths of these receipts."""
        paths = iter([file.path for receipt in receipts for file in output_files(receipt)])
        found: set[FileDigest] = set()
        while some := list(islice(paths, _PATHS_A_REQUEST)):
            entries = self._api.get_paths_info(self._repo_id, some, revision=revision, repo_type="dataset")
            found |= {(file.path, file.lfs.sha256) for file in entries if isinstance(file, RepoFile) and file.lfs}
        return found

    def _document(self, wave: Sequence[Receipt]) -> CommitOperationAdd:
        """A wave's receipts, in a file named by what it holds: the same wave again is the same file."""
        content = b"".join(receipt.to_json() + b"\n" for receipt in wave)
        name = hashlib.sha256(content).hexdigest()[:16]
        return CommitOperationAdd(f"{self._receipts_folder}/{name}.jsonl", content)

    def _kept_receipts(self, revision: str) -> Iterator[Receipt]:
        files = HfFileSystem(skip_instance_cache=True)
        for path in self._documents(revision):
            with files.open(f"datasets/{self._repo_id}@{revision}/{path}", "rb") as document:
                for line in document.read().splitlines():
                    if receipt := read_receipt(line, self._run_id, source=path):
                        yield receipt

    def _documents(self, revision: str) -> list[str]:
        """None where a finalizer died between the branch and its first wave."""
        try:
            entries = list(
                self._api.list_repo_tree(self._repo_id, self._receipts_folder, revision=revision, repo_type="dataset")
            )
        except EntryNotFoundError:
            return []
        return [entry.path for entry in entries]
