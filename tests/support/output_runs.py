"""A run of two shards whose output is anywhere: in a folder, in a bucket or on the Hub."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from hubserver import HubServer
from shardsift.fleet.run.receipt import OutputFile, Receipt
from shardsift.fleet.run.spec import Shard
from shardsift.fleet.storage.hub_files import filesystem_of
from shardsift.fleet.storage.open_output import open_output
from shardsift.fleet.storage.output import CARD_PATH, MANIFEST_PATH, Output
from support.outputs import Published
from support.records import a_manifest, a_shard, a_spec, stage_shard

SPEC = a_spec()
RUN = SPEC.run_id
A, B = a_shard("crawl/a"), a_shard("crawl/b")
FILES = ["folder", "memory", pytest.param("bucket", marks=pytest.mark.slow)]  # the kinds of places, without the Hub
# The Hub has staged files, receipts and checkpoints not as files, and no folders around a dataset.
without_the_hub = pytest.mark.parametrize("empty", FILES, indirect=True)
in_a_folder = pytest.mark.parametrize("empty", ["folder"], indirect=True)


@dataclass(frozen=True)
class Place:
    """The output of the run, what a reader sees there, and a folder for a worker's files."""

    uri: str
    files: Published
    folder: Path

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
        """What a finalizer that died midway has done."""
        system, root = filesystem_of(self.uri)
        for file in files:
            system.makedirs(f"{root}/{file.path}".rpartition("/")[0], exist_ok=True)
            system.mv(f"{root}/{file.staged_path}", f"{root}/{file.path}")

    def recovered(self) -> list[Receipt]:
        return list(self.output.recovered().whole)

    def hidden(self) -> set[str]:
        return self.files.hidden_paths()


class PublishedOnHub(Published):
    """The files of a dataset on the Hub, and ways to damage them by foreign commits."""

    def __init__(self, hub: HubServer, repo: str) -> None:
        self._hub, self._repo = hub, repo

    def read(self, path: str) -> bytes:
        return self._hub.read(self._repo, path)

    def write(self, path: str, content: bytes | None) -> None:
        self._hub.write(self._repo, path, content)

    def paths(self) -> set[str]:
        return self._hub.files(self._repo).keys() - {".gitattributes"}

    def delete(self, path: str) -> None:
        self.write(path, None)
