"""The branch of a run on the Hub. It reserves the repository and holds finished shards until the run is published.

The Hub drops blobs that no commit refers to after about a day, so finished shards are committed to this branch in
*waves*. A wave is one commit with the files of some shards and `.shardsift/<run_id>/receipts/<digest>.jsonl`, which
holds their receipts. Readers of the dataset see only `main`.
Besides the errors in their docstrings, methods raise the client's errors.
"""

import hashlib
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice

from huggingface_hub import HfApi
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RevisionNotFoundError
from huggingface_hub.hf_api import RepoFile

from shardsift.fleet.errors import OutputDamaged, UsageError
from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.receipt import Receipt, Receipts
from shardsift.fleet.run.spec import RunSpec, disclosed_spec
from shardsift.fleet.storage.hub_commit import commit
from shardsift.fleet.storage.hub_files import HubFiles
from shardsift.fleet.storage.inspection import each_file
from shardsift.fleet.storage.output import FileDigest, is_among, read_receipt

MAIN = "main"
PULL_REQUEST = "refs/pr/"  # followed by its number; takes commits like a branch
_BRANCHES = "shardsift/"
_PATHS_PER_REQUEST = 500
# Limits the search for dropped blobs, because the Hub limits commits, and scoring a few more shards again is cheap.
_MAX_REFUSED_COMMITS = 256


class RunBranch:
    def __init__(self, api: HfApi, repo_id: str, run_id: str, target: str) -> None:
        self.name = f"{_BRANCHES}{run_id}"
        self._api = api
        self._repo_id = repo_id
        self._run_id = run_id
        self._target = target
        self._receipts_folder = f".shardsift/{run_id}/receipts"

    def create_target(self) -> None:
        """Create the branch to publish on if it does not exist. Raises UsageError if it is a pull request that does not exist.

        The new branch starts at the repository's first commit, because main may hold another dataset.
        """
        if self._target in self._heads():
            return
        if self._target.startswith(PULL_REQUEST):
            raise UsageError(
                f"There is no {self._target} of {self._repo_id}. Open a draft pull request there, and name its number: "
                f"hf discussions create {self._repo_id} --type dataset --pr --title …"
            )
        first = self._api.list_repo_commits(self._repo_id, repo_type="dataset")[-1].commit_id
        self._api.create_branch(self._repo_id, branch=self._target, revision=first, repo_type="dataset", exist_ok=True)

    def head(self) -> str | None:
        return self._heads().get(self.name)

    def is_reserved(self) -> bool:
        return self._reserved_at(self._run_id) is not None

    def reserved_by_other(self, published: Collection[str]) -> str | None:
        """Return the id of another run that has reserved the repository, or None.

        `published` has the ids of published runs, whose reservations no longer count.
        """
        return next(iter(self._reservations(published)), None)

    def reserve(self, spec: RunSpec, published: Collection[str]) -> str | None:
        """Reserve the repository by committing the spec to the run's branch.

        Returns the id of another run if that run has reserved the repository already, otherwise None.

        If two runs reserve at the same moment, at least one sees the other after its own commit. A run that sees
        another continues only if its own commit is earlier by the Hub's clock; otherwise it removes its branch. So at
        most one continues. May run twice.
        """
        if other := self.reserved_by_other(published):
            return other
        if self.is_reserved():
            return None
        self.write(_spec_path(self._run_id), disclosed_spec(spec).to_json(), message=_reservation(self._run_id))
        ours = self._reserved_at(self._run_id)
        for other, theirs in self._reservations(published).items():
            if ours is None or theirs is None or theirs <= ours:
                self.delete()
                return other
        return None

    def write(self, path: str, content: bytes, *, message: str) -> None:
        """Commit a small file to the branch, and create the branch if needed.

        Raises PublishConflict if another commit came first.
        """
        self._create_branch(self._heads())
        head = self._heads().get(self.name)  # because the client takes any 409 for an existing branch
        commit(self._api, self._repo_id, [], {path: content}, message=message, to=self.name, parent=head)

    def all_of_runs(self) -> dict[str, str]:
        return {name: head for name, head in self._heads().items() if name.startswith(_BRANCHES)}

    def lacking(self, receipts: Sequence[Receipt]) -> Receipts:
        """Return the receipts whose files are not in the branch's head.

        Without a branch, looks in the target's head.
        """
        heads = self._heads()
        return self.not_in(heads.get(self.name, heads[self._target]), receipts)

    def save(self, receipts: Sequence[Receipt]) -> None:
        """Commit the receipts that are not committed yet, as one wave. May run twice.

        If the Hub has dropped blobs, splits the wave in halves until it finds the affected shards, commits the others,
        and raises OutputDamaged with the affected ones. Raises PublishConflict if another commit came first.
        """
        # Read first: if another process commits a wave after this, our commit is refused and does not repeat its files.
        heads = self._heads()
        parent = heads.get(self.name, heads[self._target])
        wave = self.not_in(parent, receipts)
        if not wave:
            return
        self._create_branch(heads)
        if dropped := self._commit(wave, parent):
            raise OutputDamaged(dropped)

    def _commit(self, wave: Sequence[Receipt], parent: str) -> dict[str, str]:
        """Commit a wave, or its halves if the Hub has dropped one of its blobs.

        Returns the shards left out, with the reasons.
        """
        dropped: dict[str, str] = {}
        refused, parts = 0, deque([wave])
        while parts:
            part = parts.popleft()
            message = f"A wave of {counted(len(part), 'shard')} of {self._run_id}"
            try:
                documents = self._document(part)
                parent = commit(self._api, self._repo_id, part, documents, message=message, to=self.name, parent=parent)
            except OutputDamaged as damage:
                refused, middle = refused + 1, len(part) // 2
                if middle and refused < _MAX_REFUSED_COMMITS:
                    parts += part[:middle], part[middle:]
                else:
                    dropped |= damage.damaged
        return dropped

    def receipts(self) -> list[Receipt]:
        """Return the receipts of all waves, without those whose files are no longer on the branch."""
        head = self.head()
        return self.of_those_in(head, list(self._stored_receipts(head))) if head else []

    def of_those_in(self, revision: str, receipts: Sequence[Receipt]) -> list[Receipt]:
        return [receipt for receipt, is_there in self._looked_up(revision, receipts) if is_there]

    def delete(self) -> None:
        """Remove the branch if it exists. May run twice, even concurrently."""
        if self.head() is None:
            return
        try:
            self._api.delete_branch(self._repo_id, branch=self.name, repo_type="dataset")
        except HfHubHTTPError:
            if self.head() is not None:
                raise

    def _heads(self) -> dict[str, str]:
        """Return the head commit of each branch. If the run is published on a pull request, includes pull requests."""
        is_pull_request = self._target.startswith(PULL_REQUEST)
        refs = self._api.list_repo_refs(self._repo_id, repo_type="dataset", include_pull_requests=is_pull_request)
        pull_requests = {pull_request.ref: pull_request.target_commit for pull_request in refs.pull_requests or ()}
        return {branch.name: branch.target_commit for branch in refs.branches} | pull_requests

    def not_in(self, revision: str, receipts: Sequence[Receipt]) -> Receipts:
        """Return the receipts whose files are not in the commit `revision`."""
        stored = receipts if isinstance(receipts, Receipts) else Receipts(receipts)
        return stored.only(not is_there for _, is_there in self._looked_up(revision, stored))

    def _looked_up(self, revision: str, receipts: Iterable[Receipt]) -> Iterator[tuple[Receipt, bool]]:
        left = iter(receipts)
        while some := list(islice(left, _PATHS_PER_REQUEST // 2)):
            digests = self.digests_at(revision, [file.path for file, _ in each_file(some)])
            yield from ((receipt, is_among(receipt, digests)) for receipt in some)

    def digests_at(self, revision: str, wanted: Iterable[str]) -> set[FileDigest]:
        """Return the path and sha256 of each file that the commit `revision` has at one of these paths."""
        paths = iter(wanted)
        found: set[FileDigest] = set()
        while some := list(islice(paths, _PATHS_PER_REQUEST)):
            entries = self._api.get_paths_info(self._repo_id, some, revision=revision, repo_type="dataset")
            found |= {(file.path, file.lfs.sha256) for file in entries if isinstance(file, RepoFile) and file.lfs}
        return found

    def _create_branch(self, heads: dict[str, str]) -> None:
        if self.name not in heads:
            self._api.create_branch(
                self._repo_id, branch=self.name, revision=heads[self._target], repo_type="dataset", exist_ok=True
            )

    def _reservations(self, published: Collection[str]) -> dict[str, datetime | None]:
        """Return the other, unpublished runs that have reserved the repository, and the times of their reservations."""
        others = {name.removeprefix(_BRANCHES) for name in self.all_of_runs() if name != self.name}
        return {other: self._reserved_at(other) for other in sorted(others - {*published}) if self._has_spec(other)}

    def _has_spec(self, run_id: str) -> bool:
        revision = f"{_BRANCHES}{run_id}"
        return self._api.file_exists(self._repo_id, _spec_path(run_id), repo_type="dataset", revision=revision)

    def _reserved_at(self, run_id: str) -> datetime | None:
        """Return when a run reserved the repository, by the Hub's clock. None if it did not, or its branch is gone."""
        try:
            commits = self._api.list_repo_commits(self._repo_id, repo_type="dataset", revision=f"{_BRANCHES}{run_id}")
        except RevisionNotFoundError:
            return None
        return next((commit.created_at for commit in commits if commit.title == _reservation(run_id)), None)

    def _document(self, wave: Sequence[Receipt]) -> dict[str, bytes]:
        """Return the path and content of a file with a wave's receipts. A repeated wave gets the same path, from its digest."""
        content = b"".join(receipt.to_json() + b"\n" for receipt in wave)
        name = hashlib.sha256(content).hexdigest()[:16]
        return {f"{self._receipts_folder}/{name}.jsonl": content}

    def _stored_receipts(self, revision: str) -> Iterator[Receipt]:
        files = HubFiles(skip_instance_cache=True)
        for path in self._documents(revision):
            with files.open(f"datasets/{self._repo_id}@{revision}/{path}", "rb") as document:
                for line in document.read().splitlines():
                    if receipt := read_receipt(line, self._run_id, source=path):
                        yield receipt

    def _documents(self, revision: str) -> list[str]:
        try:
            entries = list(
                self._api.list_repo_tree(self._repo_id, self._receipts_folder, revision=revision, repo_type="dataset")
            )
        except EntryNotFoundError:
            return []
        return [entry.path for entry in entries]


def _spec_path(run_id: str) -> str:
    return f".shardsift/{run_id}/spec.json"


def _reservation(run_id: str) -> str:
    return f"Reserve this repository for {run_id}"
