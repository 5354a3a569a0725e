"""The interface of a run's output, for workers and the control side.

Every output works in two steps. Workers *stage* files: these are stored, but invisible to readers of the dataset. The
finalizer *publishes* all files of the run, and last the manifest, which proves that the rest is there.
"""

import logging
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from pydantic import TypeAdapter

from shardsift.fleet.errors import OutputTaken, UsageError
from shardsift.fleet.process.wording import shown_bytes
from shardsift.fleet.run.receipt import OutputFile, Receipt
from shardsift.fleet.run.scoring import Scoring
from shardsift.fleet.run.spec import BY_SCORES, RunSpec, Shard, disclosed_spec, part_name
from shardsift.fleet.storage.inspection import DATA_FOLDERS, Finding, has_text

if TYPE_CHECKING:
    from shardsift.fleet.storage.manifest import Manifest

# Input files that changed after a run was enqueued, and that `producer retry` accepted as the run's.
#
# The output records them, so that the same command finds its run again if Redis has lost the run.

ACCEPTED_PATH = ".shardsift/accepted.json"


@dataclass(frozen=True, kw_only=True)
class AcceptedFiles:
    run_id: str
    identities: dict[str, tuple[str, str]] = field(default_factory=dict)  # shard → as enqueued, as accepted
    # First row and row limit of each shard, for a run that splits files.
    ranges: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    columns: tuple[tuple[str, str], ...] = ()  # the run's, because a sample of the changed files may have others

    def after(self, changes: Iterable[tuple[Shard, Shard]]) -> "AcceptedFiles":
        """Return this record with changed files added, given as pairs of the shard before and after the change."""
        new = {was.name: (self.identities.get(was.name, (was.identity,))[0], now.identity) for was, now in changes}
        return replace(self, identities=self.identities | new)

    def has(self, shard: Shard) -> bool:
        return self.identities.get(shard.name, ("", ""))[1] == shard.identity

    def as_enqueued(self, file: Shard) -> Shard:
        """Return a file with the identity that was enqueued, if its change was accepted. Otherwise return it unchanged.

        All parts of a file are accepted together.
        """
        for name in (file.name, part_name(file.name, 0)):
            if self.has(replace(file, name=name)):
                return replace(file, identity=self.identities[name][0])
        return file

    def to_json(self) -> bytes:
        return _ACCEPTED.dump_json(self)


_ACCEPTED = TypeAdapter(AcceptedFiles)


def read_accepted(content: bytes | None) -> AcceptedFiles | None:
    """Read a record from `to_json`. None if there is none, or it is damaged."""
    with suppress(ValueError):
        return _ACCEPTED.validate_json(content or b"")
    return None


MANIFEST_PATH = "manifest.parquet"
CARD_PATH = "README.md"
PICTURE_PATH = "scores.png"  # shown in the card; drawn only with matplotlib


class Output(Protocol):
    """The output of one run. Methods raise TransientError or ShardError. Each method may be called twice.

    A method with a body is a default, for outputs that cannot store receipts and checkpoints, or that never drop staged
    files.
    """

    uri: str
    run_id: str

    # --- for workers ------------------------------------------------------------------------------------------------

    def stage(self, file: Path, path: str, *, attempt: str) -> str:
        """Upload a file that will be published at `path`. Returns the path at which it is staged until then.

        `attempt` keeps the files of two attempts at a shard apart.
        """

    def has(self, path: str, sha256: str) -> bool:
        """Return whether this file is published already. A run that replaces another then need not upload it."""
        return False

    def store_receipt(self, receipt: Receipt) -> None:
        """Store the receipt of an attempt beside its staged files. Does nothing if this kind of output cannot."""
        return

    def store_checkpoint(self, shard: str, name: str, content: bytes) -> bool:
        """Store part of an unfinished shard for its next attempt. Returns False if this kind of output cannot."""
        return False

    def checkpoints(self, shard: str) -> dict[str, bytes]:
        """Read the stored parts of an unfinished shard, by name."""
        return {}

    def drop_checkpoints(self, shard: str) -> None:
        """Remove the stored parts of a finished shard."""
        return

    def open_file(self, file: OutputFile) -> AbstractContextManager[BinaryIO]:
        """Open a receipt's file, staged or published.

        Does not check its content. Raises ShardError if it is missing.
        """

    # --- for the control side ---------------------------------------------------------------------------------------

    def check_free(self, spec: RunSpec) -> None:
        """Raise UsageError if the output holds files of others or overlaps another output. Changes nothing."""

    def reserve(self, spec: RunSpec, *, public: bool = False) -> None:
        """Prepare the output for this run. Raises UsageError if it cannot be written or is not free.

        `public` sets the visibility of a new repository. An existing one keeps its own.
        """

    def withdraw(self) -> None:
        """Give up the output, and remove what this run has stored but not published."""

    def accepted(self) -> dict[str, AcceptedFiles]:
        """Return the records of changed input files that `producer retry` accepted, by run id.

        An output may still have the record of an earlier run.
        """

    def accept(self, files: AcceptedFiles) -> None:
        """Record the changed input files that `producer retry` accepted for this run, in place of earlier records."""

    def recovered(self) -> "Recovered":
        """Find receipts in this output, to rebuild a ledger that has lost the run. Does not use the ledger.

        If the run is published, receipts in the manifest take precedence.
        """

    def unsaved(self, receipts: Sequence[Receipt]) -> Sequence[Receipt]:
        """Return the receipts whose staged files the output may drop before the run is published."""
        return []

    def save(self, receipts: Sequence[Receipt]) -> None:
        """Store the staged files of these receipts so that the output does not drop them before the run is published.

        Readers still do not see them. On the Hub, commits them to the run's branch. May run twice. Raises PublishConflict if
        another process committed at the same moment; a later call saves what is still `unsaved`. Raises OutputDamaged for
        shards whose files have already been dropped, after it has saved all others.
        """
        return

    def manifest(self) -> "Manifest | None":
        """Read the manifest that is published here. None if nothing is published here.

        If it is lost or damaged, returns what the output still has of it: on the Hub, the manifest in the last commit that
        published a run; otherwise the one restored from the copies that the runs keep. None if there is neither.
        """

    def is_published(self) -> bool:
        manifest = self.manifest()
        return manifest is not None and self.run_id in manifest.run_ids

    def inspect(self, receipts: Sequence[Receipt], *, hashes: bool) -> list[Finding]:
        """Find what is wrong with the receipts' published files, the manifest and the card. Also find foreign files.

        The files of other runs that the manifest lists are not checked, and do not count as foreign. Compares sizes; if
        `hashes`, also content. An output that lists hashes always compares them.
        """

    def has_staged(self, receipts: Sequence[Receipt]) -> bool:
        """Return whether a file of these receipts is staged but not published.

        For example, this is so after a shard of a published run was scored again.
        """
        return False

    def head(self) -> str:
        """Return the commit that readers see; empty if the output has no commits."""
        return ""

    def publish(
        self, receipts: Sequence[Receipt], documents: Mapping[str, bytes], *, parent: str, removed: Sequence[str] = ()
    ) -> str:
        """Publish the receipts' files together with the documents (manifest and card). Returns the commit, if any.

        Also removes the published files at the paths in `removed`. First checks every file, including published ones.
        Raises OutputDamaged with the affected shards if a file's size or sha256 differs from its receipt, and then
        publishes nothing. `parent` is the head from before the output was inspected. Raises PublishConflict if the head
        has changed since.
        """

    def tidy(self, receipts: Sequence[Receipt]) -> None:
        """Remove what a published run no longer needs: checkpoints, staged files of its shards, the run's branch."""


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """Receipts found with an output, at most one per shard.

    All files of a `whole` receipt exist and have the right size. Some files of a `partial` receipt are missing or
    damaged.
    """

    whole: tuple[Receipt, ...] = ()
    partial: tuple[Receipt, ...] = ()


def output_files(receipt: Receipt) -> tuple[OutputFile, OutputFile]:
    return receipt.data, receipt.scores


# Read back receipts that were stored with an output. Knows nothing of folders or the Hub.

FileDigest = tuple[str, str]  # path in the output, sha256
logger = logging.getLogger(__name__)


def read_receipt(content: bytes, run_id: str, *, source: str) -> Receipt | None:
    """Parse a stored receipt. Logs a warning and returns None if it is broken or belongs to another run."""
    try:
        receipt = Receipt.from_json(content)
        shard = Shard(name=receipt.shard, uri=receipt.source_uri, identity=receipt.source_identity)
        of_data, of_scores = (  # the first shard of each file
            replace(shard, name=file.path.removeprefix(f"{folder}/").removesuffix(".parquet"))
            for folder, file in (("data", receipt.data), ("scores", receipt.scores))
        )
    except ValueError as error:
        logger.warning("Skipped %s: not a receipt (%s)", source, " ".join(str(error).split())[:200])
        return None
    is_moved = receipt.own_data_bytes > 0  # only such receipts name another shard's data file
    data_path = of_data.data_path if is_moved else shard.data_path
    if receipt.run_id != run_id or (receipt.data.path, receipt.scores.path) != (data_path, of_scores.scores_path):
        logger.warning("Skipped %s: not a receipt of run %s", source, run_id)
        return None
    return receipt


def by_shard(receipts: Iterable[Receipt]) -> Iterator[tuple[str, list[Receipt]]]:
    ordered = sorted(receipts, key=lambda receipt: receipt.shard)
    return ((shard, list(found)) for shard, found in groupby(ordered, key=lambda receipt: receipt.shard))


def digests(receipt: Receipt) -> set[FileDigest]:
    return {(file.path, file.sha256) for file in output_files(receipt)}


def is_among(receipt: Receipt, files: Collection[FileDigest]) -> bool:
    return all(digest in files for digest in digests(receipt))


# Refuse an output that holds another run or files of others.

_NAMES = {
    "input_uris": "the input",
    "input_revision": "the files of the input",
    "where": "the filter",
    "best": "--keep-top",
    "drop_lists": "--drop-list",
    "unique": "--unique",
    "target_file_bytes": "--target-file-size",
}
# Fields about the input and its size, and about the locations of the input and of stored scores.
_OF_INPUT = {
    "input_uris",
    "input_revision",
    "crawl",
    "subsets",
    "limit_rows",
    "rows_per_task",
    "max_bad_rows",
    "extends",
    "output_uri",
    "scores_from",
}


def other_run(uri: str, run_id: str, there: RunSpec | None, here: RunSpec) -> OutputTaken:
    """Make the error for an output that holds another run.

    `there` is that run's spec as `disclosed_spec` stores it, None if it cannot be read. `here` is the spec of this run.
    """
    advice = "Choose another --output, or use that run's options to continue it."
    differing = _differing(there, here)
    if there and differing and {*differing} <= BY_SCORES:
        command = refilter_command(uri, there, replace(here, output_uri="URI"))
        advice += f" Other rows of it need no scoring when it is published: {command}"
    if there and there.input_revision != here.input_revision:
        advice += f" To score changed files of its failed shards as they are now: producer retry {run_id}"
    return OutputTaken(
        f"The output {uri} holds the data of another run, {run_id}.{_differences(differing)} {advice}",
        run_id=run_id,
    )


def refilter_command(target: str, there: RunSpec, here: RunSpec) -> str:
    """Return the `producer refilter` command that makes the rows of the run `here` from the scores of the run `there`.

    `target` is the id of the run `there`, or the URI of its output.
    """
    rows = ["--keep-all"] if here.where is None else ["--where", here.where]
    if here.best:
        rows = ["--keep-top", here.best.share, *(["--by", here.best.by] if here.best.by else [])]
    lists = [one.option for one in here.drop_lists] or ["none"] * bool(there.drop_lists)
    rows += [part for one in lists for part in ("--drop-list", one)]
    rows += ["--unique"] if here.unique else []
    if here.target_file_bytes != there.target_file_bytes:
        rows += ["--target-file-size", shown_bytes(here.target_file_bytes) if here.target_file_bytes else "none"]
    inputs = (
        [] if here.input_uris == there.input_uris else [part for uri in here.input_uris for part in ("--input", uri)]
    )
    return shlex.join(["producer", "refilter", target, *rows, "--output", here.output_uri, *inputs])


def refuse_files_of_others(uri: str, names: Collection[str], card: bytes | None) -> None:
    """Raise UsageError if an output already holds data, or a card or picture that this run would overwrite.

    `names` has the names of its files and folders; `card` is the content of its card. Call this only if the run has
    published nothing here.
    """
    if {*names} & {*DATA_FOLDERS, MANIFEST_PATH}:
        raise UsageError(
            f"The output {uri} holds data, but no {MANIFEST_PATH} that this release of shardsift can read. "
            "Choose another --output."
        )
    cards = {CARD_PATH} if card is None or has_text(card) else set()
    if in_the_way := {*names} & {*cards, PICTURE_PATH}:
        raise UsageError(
            f"The output {uri} has a {min(in_the_way)}, which the card of the dataset would replace. Move it away, or choose "
            "another --output."
        )


def differences_in_meaning(there: RunSpec, here: RunSpec) -> list[str]:
    """Return the differences that keep the rows of two runs from forming one dataset. Empty if there are none.

    `there` is a spec from `disclosed_spec`, without private paths and names. `here` is the complete spec of a run.
    """
    return [_NAMES.get(name, name.replace("_", " ")) for name in _differing(there, here) or () if name not in _OF_INPUT]


def _differing(there: RunSpec | None, here: RunSpec) -> list[str] | None:
    if there is None:
        return None
    ours = disclosed_spec(here)
    found = [field.name for field in fields(RunSpec) if getattr(there, field.name) != getattr(ours, field.name)]
    if "scorings" in found and len(there.scorings) == len(ours.scorings):
        found.remove("scorings")
        pairs = [*zip(there.scorings, ours.scorings, strict=True)]
        found += [
            field.name
            for field in fields(Scoring)
            if any(getattr(one, field.name) != getattr(other, field.name) for one, other in pairs)
        ]
    return found


def _differences(differing: list[str] | None) -> str:
    if differing is None:
        return ""
    named = [_NAMES.get(name, name.replace("_", " ")) for name in differing]
    return f" It differs in: {', '.join(named) or 'the location of the input or the model'}."
