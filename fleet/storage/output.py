"""The interface of an output: Staging for workers, Publishing for the control side.

Every output works in two steps. Workers *stage* files: the bytes are stored, but readers of the dataset do not see them.
The finalizer *publishes*: it makes all files of the run visible, and then the manifest, which proves that they are.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar, Protocol

from fleet.receipt import OutputFile, Receipt
from fleet.spec import RunSpec
from fleet.storage.accepted import AcceptedFiles
from fleet.storage.inspection import Finding

MANIFEST_PATH = "manifest.parquet"
CARD_PATH = "README.md"


class Staging(Protocol):
    """What a worker does with the output of a run. Methods raise TransientError or ShardError; each may be called twice."""

    def stage(self, file: Path, path: str, *, attempt: str) -> str:
        """Upload a finished file without making it visible at `path`. Returns the path at which it is staged."""

    def store_receipt(self, receipt: Receipt) -> None:
        """Store the receipt of an attempt beside its staged files, if this kind of output can."""

    def discard(self, receipt: Receipt) -> None:
        """Remove the staged files and the receipt of an attempt that lost its shard to another. Never raises.

        Published files and files of other attempts stay. Publishing the run removes what cannot be removed now.
        """

    def store_checkpoint(self, shard: str, name: str, content: bytes) -> bool:
        """Store part of an unfinished shard for its next attempt. Returns False if this kind of output cannot."""

    def checkpoints(self, shard: str) -> dict[str, bytes]:
        """Name → content of the parts that attempts at a shard have stored."""

    def drop_checkpoints(self, shard: str) -> None:
        """Remove the stored parts of a finished shard."""

    def open_file(self, file: OutputFile) -> AbstractContextManager[BinaryIO]:
        """Open a receipt's file, staged or published, without checking it. Raises ShardError if it does not exist."""


class Publishing(Protocol):
    """What the control side does with the output of a run. Methods raise as those of Staging; each may be called twice."""

    staged_files_stay: ClassVar[bool]
    """Whether staged files stay until they are published. The Hub drops them after about a day."""

    lists_sha256: ClassVar[bool]
    """Whether `inspect` compares content without reading the files. The Hub lists the sha256 of each file."""

    def check_free(self, spec: RunSpec) -> None:
        """Raises UsageError if the output holds files or lies inside or around an output of others. Changes nothing."""

    def reserve(self, spec: RunSpec, *, public: bool = False) -> None:
        """Prepare the output for this run. Raises UsageError if it cannot be written or is not free,
        TransientError for the network.

        `public` sets the visibility of a new repository. An existing one keeps its own.
        """

    def withdraw(self) -> None:
        """Give the output up, with all that this run has stored and not published."""

    def accepted(self) -> dict[str, AcceptedFiles]:
        """The changed input files that were accepted, by run. An output may still have those of an earlier run."""

    def accept(self, files: AcceptedFiles) -> None:
        """Record the changed input files of this run that are accepted, in place of those recorded before."""

    def recovered(self) -> "Recovered":
        """The receipts found in this output, to rebuild a ledger that lost the run. Does not use the ledger.

        If the run is published, receipts in the manifest take precedence.
        """

    def unsaved(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """The receipts whose staged files may vanish before the run is published; none if staged files stay."""

    def save(self, receipts: Sequence[Receipt]) -> None:
        """Protect the staged files of these receipts from vanishing. Readers of the dataset still do not see them.

        May run twice. Raises PublishConflict if another process saved at the same moment: look again. Raises OutputDamaged
        for shards whose files have already vanished, after all others are saved.
        """

    def published(self) -> str | None:
        """The run that is currently published here; None if there is none, or its manifest is damaged."""

    def inspect(self, receipts: Sequence[Receipt], *, hashes: bool) -> list[Finding]:
        """What is wrong with the published files of these receipts, the manifest and the card, and which files are foreign.

        Compares sizes, and with `hashes` also content; if the output lists hashes, it always compares content.
        """

    def has_staged(self, receipts: Sequence[Receipt]) -> bool:
        """Whether a file of these receipts is staged but not yet visible, for example after a shard was scored again."""

    def head(self) -> str:
        """The commit that readers currently see; empty if the output has no commits."""

    def publish(self, receipts: Sequence[Receipt], documents: Mapping[str, bytes], *, parent: str) -> str:
        """Make the receipts' files visible together with the documents (manifest and card). Returns the commit, if any.

        Checks every file, including visible ones. If the size or sha256 of a file differs from its receipt, raises
        OutputDamaged with the shards and publishes nothing. `parent` is the head from before the output was inspected.
        Raises PublishConflict if the head has changed since.
        """

    def tidy(self, receipts: Sequence[Receipt]) -> None:
        """Remove what only an unpublished run needs: checkpoints, staged files of the published shards, the run's branch."""


class Output(Staging, Publishing, Protocol):
    """The output of one run."""


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """Receipts found with an output, at most one per shard.

    For each `whole` receipt, all files exist with the right size. For a `partial` one, some are missing or damaged, but
    the score file may exist.
    """

    whole: tuple[Receipt, ...] = ()
    partial: tuple[Receipt, ...] = ()


def output_files(receipt: Receipt) -> tuple[OutputFile, OutputFile]:
    return receipt.data, receipt.scores
