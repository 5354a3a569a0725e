"""What an output must do.

Every output works in two steps. Workers *stage* files: the bytes are there, but no reader of the dataset sees them.
The finalizer *publishes*: all files of the run become visible with their manifest, and the manifest is the proof.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow.parquet as pq

from fleet.receipt import OutputFile, Receipt
from fleet.spec import RunSpec
from fleet.storage.inspection import Finding

MANIFEST_PATH = "manifest.parquet"
CARD_PATH = "README.md"
_MARK = b"shardsift.publication"


class Output(Protocol):
    """The output of one run. Methods raise TransientError or ShardError; each may be called twice."""

    def reserve(self, spec: RunSpec, *, public: bool = False) -> None:
        """Make the place ready for this run. Raises UsageError where it cannot be written or holds another run's data.

        `public` decides who may see a repository that is created; one that exists stays as it is.
        """

    def stage(self, file: Path, path: str, *, attempt: str) -> str:
        """Upload a finished file, not yet visible at `path`; returns where it lies until then."""

    def store_receipt(self, receipt: Receipt) -> None:
        """Store the receipt of one attempt beside its staged files, where the kind of output has such a place."""

    def discard(self, receipt: Receipt) -> None:
        """Remove what an attempt staged and its receipt, since another attempt has the shard; raises nothing.

        Published files and other attempts' files stay. What it cannot remove goes when the run is published.
        """

    def recovered(self) -> "Recovered":
        """What of the run is safe here, for a ledger that lost it. Knows nothing of the ledger.

        If the run is published, receipts that the manifest lists come first.
        """

    def unsaved(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Those whose staged files may vanish before the run is published; none where staged files stay."""

    def save(self, receipts: Sequence[Receipt]) -> None:
        """Keep the staged files of those from vanishing, still unseen by readers of the dataset; saved ones stay so.

        Raises PublishConflict if somebody else saved at the same moment: look again. Raises OutputDamaged for the shards
        whose files have vanished already, when all others are saved.
        """

    def store_checkpoint(self, shard: str, name: str, content: bytes) -> bool:
        """Store a piece of an unfinished shard for its next attempt; False where the kind of output has no such place."""

    def checkpoints(self, shard: str) -> dict[str, bytes]:
        """The pieces that attempts at a shard stored, by name."""

    def drop_checkpoints(self, shard: str) -> None:
        """Remove the pieces of a shard that is finished."""

    def published(self) -> "Mark | None":
        """What is published here now."""

    def open_file(self, file: OutputFile) -> AbstractContextManager[BinaryIO]:
        """The bytes of a receipt's file, wherever they lie now. They are not checked. Raises ShardError if they are gone."""

    def inspect(self, receipts: Sequence[Receipt], *, hashes: bool) -> list[Finding]:
        """What of these receipts' published files, manifest and card is not as it should be, and which files are foreign.

        Looks at sizes, and with `hashes` at the content; the Hub tells the sha256 of its files always.
        """

    def has_staged(self, receipts: Sequence[Receipt]) -> bool:
        """Whether a file of these receipts still waits to be made visible, as of a shard that was done again."""

    def head(self) -> str:
        """The commit that readers see now; empty where there are no commits."""

    def publish(self, receipts: Sequence[Receipt], documents: Mapping[str, bytes], *, parent: str) -> str:
        """Make the receipts' files visible with the documents (manifest and card); returns the commit, if there is one.

        Reads every file, those that are visible already too. If the size or sha256 of one is not that of its receipt,
        OutputDamaged names the shards, and nothing is published. `parent` is the head before the output was looked at.
        Raises PublishConflict when it is the head no more.
        """

    def tidy(self, receipts: Sequence[Receipt]) -> None:
        """Remove what only an unpublished run needs: checkpoints, the published shards' staged files of all attempts, and
        what kept staged files from vanishing."""


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """Receipts found with an output, at most one per shard. All files of the `whole` ones are there, by their sizes.

    Of the `partial` ones some are missing or damaged; the score file may be there.
    """

    whole: tuple[Receipt, ...] = ()
    partial: tuple[Receipt, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What a manifest says it publishes: the run, and the digest of every file's path and sha256."""

    run_id: str
    digest: str

    @classmethod
    def of(cls, run_id: str, receipts: Sequence[Receipt]) -> "Mark":
        lines = sorted(f"{file.path} {file.sha256}" for receipt in receipts for file in output_files(receipt))
        return cls(run_id=run_id, digest=hashlib.sha256("\n".join(lines).encode()).hexdigest())

    def as_metadata(self) -> dict[bytes, bytes]:
        return {_MARK: f"{self.run_id} {self.digest}".encode()}

    @classmethod
    def read_from(cls, manifest: object) -> "Mark | None":
        """The mark of an open manifest file, None for a Parquet file of somebody else's."""
        metadata = pq.read_schema(manifest).metadata or {}
        if _MARK not in metadata:
            return None
        run_id, digest = metadata[_MARK].decode().split(" ")
        return cls(run_id=run_id, digest=digest)


def output_files(receipt: Receipt) -> tuple[OutputFile, OutputFile]:
    return receipt.data, receipt.scores
