"""Runs whose output is anywhere: in a folder, in a bucket or on the Hub."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from huggingface_hub import HfApi

from hubserver import HubServer
from shardsift.fleet.ledger import Ledger, Publication
from shardsift.fleet.run.receipt import OutputFile, Receipt
from shardsift.fleet.run.spec import RunSpec, Shard
from shardsift.fleet.storage.hub_files import filesystem_of
from shardsift.fleet.storage.open_output import open_output
from shardsift.fleet.storage.output import CARD_PATH, MANIFEST_PATH, Output
from shardsift.producer.publishing.publish import NotReady, finalize_run
from support.ledger_states import claimed
from support.outputs import Published
from support.records import a_manifest, a_shard, a_spec, stage_shard

SPEC = a_spec()
RUN = SPEC.run_id
A, B = a_shard("crawl/a"), a_shard("crawl/b")
FILES = ["folder", "memory", pytest.param("bucket", marks=pytest.mark.slow)]  # kinds of outputs, without the Hub
# On the Hub, staged files, receipts and checkpoints are not files, and there are no folders around a dataset.
without_the_hub = pytest.mark.parametrize("files", FILES, indirect=True)
in_a_folder = pytest.mark.parametrize("files", ["folder"], indirect=True)


@dataclass(frozen=True)
class Place:
    """The output of the run, with a reader's view of it, and a folder for a worker's files."""

    files: Published
    folder: Path

    @property
    def uri(self) -> str:
        return self.files.uri

    @property
    def output(self) -> Output:
        return open_output(self.uri, RUN)

    def reserve(self) -> "Place":
        self.output.reserve(SPEC)
        return self

    def stage(self, shard: Shard, *, attempt: str = "1-aa") -> Receipt:
        return stage_shard(self.output, RUN, shard, self.folder, attempt=attempt)

    def publish(self, *receipts: Receipt) -> None:
        documents = {MANIFEST_PATH: a_manifest(RUN, receipts), CARD_PATH: b"# Card"}
        self.output.publish(receipts, documents, parent=self.output.head())

    def move_into_place(self, files: Sequence[OutputFile]) -> None:
        """Move staged files to their final paths, as a finalizer does before it dies midway."""
        system, root = filesystem_of(self.uri)
        for file in files:
            system.makedirs(f"{root}/{file.path}".rpartition("/")[0], exist_ok=True)
            system.mv(f"{root}/{file.staged_path}", f"{root}/{file.path}")

    def recovered(self) -> list[Receipt]:
        return list(self.output.recovered().whole)

    def hidden(self) -> set[str]:
        return self.files.hidden_paths()


@dataclass(frozen=True, kw_only=True)
class OutputRun:
    ledger: Ledger
    spec: RunSpec
    state_uri: str | None = None

    @property
    def run_id(self) -> str:
        return self.spec.run_id

    @property
    def output(self) -> Output:
        return open_output(self.spec.output_uri, self.run_id, state_uri=self.state_uri)

    @property
    def publication(self) -> Publication | None:
        return self.ledger.state(self.run_id).publication

    def reserve(self) -> None:
        self.output.reserve(self.spec)

    def fail(self, *shards: Shard) -> None:
        for shard in shards:
            self.ledger.fail(claimed(self.ledger, self.run_id, shard), "corrupt", "")

    def finalize(self, *, without_failed: bool = False) -> Publication | NotReady:
        return finalize_run(self.ledger, self.run_id, without_failed=without_failed)


class PublishedOnHub(Published):
    """The files of a dataset on the Hub, and ways to damage them with another user's commits."""

    def __init__(self, hub: HubServer, repo: str) -> None:
        self.uri, self._hub, self._repo = f"hf://datasets/{repo}", hub, repo

    def read(self, path: str) -> bytes:
        return self._hub.read(self._repo, path)

    def write(self, path: str, content: bytes | None) -> None:
        self._hub.write(self._repo, path, content)

    def paths(self) -> set[str]:
        return self._hub.files(self._repo).keys() - {".gitattributes"}

    def delete(self, path: str) -> None:
        self.write(path, None)

    def delete_all(self) -> None:
        HfApi().delete_repo(self._repo, repo_type="dataset")

    def leftovers(self) -> set[str]:
        return set(self._hub.branches(self._repo)) - {"main"}

    def commits(self) -> list[set[str]]:
        return [{operation.path for operation in commit.operations} for commit in self._hub.commits(self._repo)]
