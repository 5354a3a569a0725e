"""Check a published dataset: the manifest, every file, every row."""

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby

import pyarrow as pa

from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.inputs.open_input import open_shard
from shardsift.fleet.inputs.parquet_file import open_parquet
from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.receipt import Receipt, Receipts, row_totals
from shardsift.fleet.run.spec import RunSpec, Shard
from shardsift.fleet.storage.errors import translated
from shardsift.fleet.storage.files import Files
from shardsift.fleet.storage.folder import WORKPLACE
from shardsift.fleet.storage.inspection import DATA_FOLDERS, Finding, Problem, files_of
from shardsift.fleet.storage.open_output import Published, content_at, manifest_at, open_output, published_at
from shardsift.fleet.storage.output import CARD_PATH, MANIFEST_PATH, output_files
from shardsift.fleet.storage.parquet import RowGroups
from shardsift.producer.transient_errors import with_retries
from shardsift.producer.verify.equal_texts import EqualTexts, equal_texts
from shardsift.producer.verify.rows import kept_faults, scored_rows
from shardsift.producer.verify.source import lists_to_check, source_faults, source_shards, unlisted_shards
from shardsift.producer.verify.verification import Fault, Verification

_OF_OUR_CODE = (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError, pa.ArrowIndexError)  # not a bad file
_READERS = 4  # threads; decompressing and hashing release the GIL


@with_retries
def verify(
    uri: str,
    *,
    source: tuple[str, ...] = (),
    drop_lists: tuple[str, ...] = (),
    published_run: str | None = None,
) -> Verification:
    """Check the dataset at a folder, bucket or `hf://datasets/…` URI. With `source`, also compare it with the input.

    `drop_lists` are the files of the run's drop lists that are not on the Hub. With `source`, all of them are needed.
    `published_run` is the id of the run that is published there according to the ledger, if known. If it is given, an empty
    place counts as a damaged output.

    Raises UsageError if nothing of shardsift is there or the source cannot be listed, TransientError if the network fails,
    ShardError if this machine cannot find the place or may not read it.
    """
    published = read_published(uri, published_run=published_run)
    if isinstance(published, Fault):
        return Verification(uri=uri, run_id=published_run, faults=(published,))
    lists, unread = lists_to_check(published, drop_lists, needed=bool(source))
    published = replace(published, spec=replace(published.spec, drop_lists=lists))
    shards = (
        source_shards(source, published.receipts, published.uri, published.spec, published.left_out) if source else {}
    )
    findings = open_output(published.uri, published.run_id).inspect(published.receipts, hashes=True)
    faults = [
        Fault(path=finding.path, problem=finding.sentence, is_mendable=finding.is_mendable)
        for finding in findings
        if finding.is_damage
    ]
    faults += _missing_shards(published)
    if source:
        faults += unlisted_shards(shards, published)
    broken = {fault.path for fault in faults}
    sound = [receipt for receipt in published.receipts if not broken & {file.path for file in output_files(receipt)}]
    with equal_texts(published) as texts:
        faults += _row_faults(published, sound, shards, texts)
        if texts and not faults:
            faults += texts.faults()
    edited = tuple(str(finding) for finding in findings if not finding.is_damage)
    not_compared = tuple(receipt.shard for receipt in published.receipts if source and receipt.shard not in shards)
    files = files_of(published.receipts)
    return Verification(
        uri=published.uri,
        run_id=published.run_id,
        shards=len(published.receipts),
        left_out=published.left_out,
        files=len(files),
        size_bytes=sum(file.size_bytes for file in files),
        **row_totals(published.receipts),
        compared_with_source=bool(source),
        not_compared=not_compared,
        unread_lists=unread,
        edited=edited,
        faults=tuple(faults),
    )


def _missing_shards(published: Published) -> list[Fault]:
    problem = "is missing: its shard failed, and the run was published without it"
    failed = [Fault(path=f"data/{shard}.parquet", problem=problem) for shard in published.left_out]
    listed = len(published.receipts) + len(failed)
    lost = Fault(path=MANIFEST_PATH, problem=f"lists {listed:,} of the run's {counted(published.shards, 'shard')}")
    return failed if listed == published.shards else [*failed, lost]


def _row_faults(
    published: Published, receipts: Sequence[Receipt], source: dict[str, Shard], texts: EqualTexts | None
) -> list[Fault]:
    rows = Counter[str]()  # by path
    for receipt in published.receipts:
        for part in (receipt.kept, receipt.scored):
            rows[part.file.path] += part.rows

    def checked(receipts: Sequence[Receipt]) -> list[Fault]:
        return _file_faults(published, receipts, source, rows, texts)

    groups = [Receipts(found) for _, found in groupby(receipts, lambda one: (one.data.path, one.scores.path))]
    with ThreadPoolExecutor(_READERS) as readers:
        found = [fault for faults in readers.map(checked, groups) for fault in faults]
    return [*dict.fromkeys(found)]  # shards may share a file


def _file_faults(
    published: Published,
    receipts: Sequence[Receipt],
    source: dict[str, Shard],
    rows_of: Mapping[str, int],
    texts: EqualTexts | None,
) -> list[Fault]:
    """Check the shards that share a data file and a scores file. `rows_of` has the number of rows of each file, by path."""
    data_path, scores_path = receipts[0].data.path, receipts[0].scores.path
    try:
        with (
            translated(f"Checking {data_path} of {published.uri}"),
            open_parquet(f"{published.uri}/{scores_path}") as scores,
            open_parquet(f"{published.uri}/{data_path}") as data,
        ):
            files = RowGroups(data), RowGroups(scores)
            return [
                fault
                for receipt in receipts
                for fault in _shard_faults(*files, receipt, published.spec, source, rows_of, texts)
            ]
    except ShardError as error:
        if error.of_machine:  # the output itself may be sound
            raise
        if isinstance(error.__cause__, _OF_OUR_CODE):
            raise error.__cause__ from error
        return [Fault(path=data_path, problem=str(error))]


def _shard_faults(
    data: RowGroups,
    scores: RowGroups,
    receipt: Receipt,
    spec: RunSpec,
    source: dict[str, Shard],
    rows_of: Mapping[str, int],
    texts: EqualTexts | None,
) -> list[Fault]:
    rows, faults = scored_rows(scores, receipt, spec, rows_of_file=rows_of[receipt.scores.path])
    if faults:  # further checks would only repeat these faults
        return faults
    faults = kept_faults(data, rows, receipt, spec, rows_of_file=rows_of[receipt.data.path])
    if faults or receipt.shard not in source:
        return faults
    shard = source[receipt.shard]
    opened = open_shard(shard.uri, spec, first_row=receipt.first_row)
    with opened as original:
        return source_faults(original, shard, data, rows, receipt, spec, texts)


# Find what is published at a URI, or what remains of it.

_CARD_TAG = b"tags:\n- shardsift"


def read_published(uri: str, *, published_run: str | None = None) -> Published | Fault:
    """Read the manifest. Returns a Fault if it is missing or unreadable although a run was published there.

    A run counts as published if `published_run` is given, or if remains of a run exist. Raises UsageError if there was no
    run, TransientError if the network fails.
    """
    manifest = manifest_at(uri)
    if published := published_at(uri, manifest):
        return published
    if not (published_run or _has_remains(uri)):
        raise UsageError(_nothing_there(uri, manifest))
    problem = Problem.MISSING if manifest is None else Problem.UNREADABLE
    return Fault(path=MANIFEST_PATH, problem=Finding(path=MANIFEST_PATH, problem=problem).sentence)


def _has_remains(uri: str) -> bool:
    """Return whether at least two of a run's folders, or its card, exist.

    One folder is no proof: many datasets have a `data` folder, and an unpublished output has a `.shardsift`.
    """
    folders = sum(map(Files(uri).exists, (*DATA_FOLDERS, WORKPLACE)))
    return folders > 1 or _CARD_TAG in (content_at(uri, CARD_PATH) or b"")


def _nothing_there(uri: str, manifest: bytes | None) -> str:
    if manifest is not None:
        return f"The {MANIFEST_PATH} at {uri} is damaged or was not written by shardsift, and no other file of a run is there."
    return (
        f"There is no shardsift output at {uri}: neither a {MANIFEST_PATH} nor other published files. "
        "If a run is at work there: producer status"
    )
