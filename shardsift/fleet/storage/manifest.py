"""The manifest: one row per shard, made from its receipt. It is published with the data, so that they can be verified.

It contains a digest of its own content, which `read_manifest` checks.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from hashlib import sha256
from heapq import merge
from itertools import groupby, islice
from typing import Any, get_args, get_origin, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from shardsift.fleet.run.model import folder_revision
from shardsift.fleet.run.receipt import Provenance, Receipt, Receipts
from shardsift.fleet.run.spec import RunSpec, disclosed_spec
from shardsift.fleet.storage.inspection import Finding, Problem, StoredFile, compare, files_of, is_readable_card
from shardsift.fleet.storage.output import (
    CARD_PATH,
    MANIFEST_PATH,
    differences_in_meaning,
    digests,
    is_among,
    output_files,
)

_RUN = b"shardsift.run"  # JSON of everything that is not in the rows
_DIGEST = b"shardsift.sha256"
_AT_ONCE = 1_000  # rows in memory as Python objects

# The columns have the names and nesting of `Receipt`, except that the provenance is not nested.
_TIME = pa.timestamp("ms", tz="UTC")
_TIMES = ("started_at", "finished_at")
_MERGED = ("data_first_row", "own_data_bytes", "scores_first_row")  # columns only of runs that merge shards
_UNIQUE = {"duplicates": pa.int64(), "unique_texts": pa.string()}  # columns only of runs that keep each text once
_NO_COLUMNS = {"run_id", "staged_path", "seconds", "provenance", "scores_provenance", "rows_listed", *_MERGED, *_UNIQUE}
_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def _columns_of(kind: type) -> list[pa.Field]:
    types = get_type_hints(kind)
    names = [field.name for field in fields(kind) if field.name not in _NO_COLUMNS]
    return [pa.field(name, _TIME if name in _TIMES else _arrow_type(types[name])) for name in names]


def _arrow_type(kind: Any) -> pa.DataType:
    if is_dataclass(kind):
        return pa.struct(_columns_of(kind))  # type: ignore[arg-type]
    parts = [part for part in get_args(kind) if part not in (type(None), ...)]
    if get_origin(kind) is dict:
        return pa.map_(*map(_arrow_type, parts))
    if get_origin(kind) is tuple:
        return pa.list_(_arrow_type(parts[0]))
    return _arrow_type(parts[0]) if parts else _TYPES[kind]


_PROVENANCE = _columns_of(Provenance)
_SCHEMA = pa.schema([*_columns_of(Receipt), *_PROVENANCE])
_LISTED = [pa.field("rows_listed", pa.list_(pa.int64()))]  # only of runs with drop lists
_OF_EARLIER_RUN = [pa.field("scores_provenance", pa.struct(_PROVENANCE))]  # only of runs over stored scores


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    run_id: str
    spec: RunSpec  # the disclosed spec if the manifest was read back
    left_out: tuple[str, ...] = ()  # failed shards, if the run was published without them
    shards: int  # all shards of the run, listed and left out
    command: str | None = None  # the command that makes the same rows again, without local paths

    def listed(self, *, replaced: int = 0) -> "ListedRun":
        """Return this run as an entry of a manifest of several runs.

        `replaced` is the number of its shards that later runs have scored again. They no longer count as its shards.
        """
        return ListedRun(
            run_id=self.run_id,
            spec=disclosed_spec(self.spec),
            left_out=self.left_out,
            shards=self.shards - replaced,
            command=self.command,
        )


@dataclass(frozen=True, kw_only=True)
class Manifest(ListedRun):
    """The content of a manifest: everything that one run published, or several runs that extend one dataset.

    With several runs, `run_id` is the id of the latest one, and the other fields describe all runs together. For
    example, the spec names the inputs of all.
    """

    receipts: Sequence[Receipt]
    card_sha256: str
    evidence: str | None = None  # the evidence of how good the filter is, as JSON
    runs: tuple[ListedRun, ...] = ()  # in the order of their extensions; empty for one run

    @property
    def run_ids(self) -> tuple[str, ...]:
        return tuple(run.run_id for run in self.runs or (self,))

    def receipts_of(self, *run_ids: str) -> Receipts:
        return Receipts(receipt for receipt in self.receipts if receipt.run_id in run_ids)

    def current(self, run_id: str, receipts: Sequence[Receipt]) -> Sequence[Receipt]:
        """Return the `receipts` of a run, without those of shards that a later run has scored again."""
        if run_id not in self.run_ids[:-1]:
            return receipts
        later = {*self.run_ids[self.run_ids.index(run_id) + 1 :]}
        taken = {receipt.shard for receipt in self.receipts if receipt.run_id in later}
        return [receipt for receipt in receipts if receipt.shard not in taken] if taken else receipts

    def grows_by(self, spec: RunSpec) -> bool:
        """Return whether a run with this spec extends this dataset. False if its rows would have another meaning."""
        return spec.extends in self.run_ids and not differences_in_meaning(self.spec, spec)

    def gives_way_to(self, spec: RunSpec) -> bool:
        """Return whether a run with this spec may replace this dataset in its output.

        It may if it reads its scores from its own output, and they are exactly the scores of this dataset.
        """
        found = {one.scores_from.revision for one in spec.scorings if one.scores_from}
        return spec.is_in_place and found == {scores_revision(self.receipts)}

    def to_parquet(self) -> bytes:
        """Return a Parquet file with a row for each receipt. Its metadata holds all other fields, and the digest."""
        about = {
            "run_id": self.run_id,
            "spec": json.loads(disclosed_spec(self.spec).to_json()),
            "left_out": self.left_out,
            "shards": self.shards,
            "card_sha256": self.card_sha256,
            "command": self.command,
            "evidence": self.evidence,
        }
        if self.runs:
            about["runs"] = _RUNS.dump_python(self.runs, mode="json")
        merged = [] if self.spec.target_file_bytes is None else [pa.field(name, pa.int64()) for name in _MERGED]
        scorings = (scoring for run in self.runs or (self,) for scoring in run.spec.scorings)
        earlier = _OF_EARLIER_RUN if any(scoring.scores_from for scoring in scorings) else []
        listed = _LISTED if self.spec.drop_lists else []
        unique = [*pa.schema(_UNIQUE)] if self.spec.unique else []
        several = [pa.field("run_id", pa.string())] if self.runs else []
        schema = pa.schema([*several, *_SCHEMA, *merged, *listed, *unique, *earlier])
        run, lines, sink = json.dumps(about).encode(), map(_line, self.receipts), pa.BufferOutputStream()
        digest = _Digest(run)
        with pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True) as writer:
            while part := [*islice(lines, _AT_ONCE)]:
                batch = pa.RecordBatch.from_pylist(part, schema=schema)
                for line in _lines(batch):
                    digest.add(line)
                writer.write_batch(batch)
            writer.add_key_value_metadata({_RUN: run, _DIGEST: digest.value()})
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


_MANIFEST, _RUNS, _RECEIPT = TypeAdapter(Manifest), TypeAdapter(tuple[ListedRun, ...]), TypeAdapter(Receipt)


def read_manifest(content: bytes | None) -> Manifest | None:
    """Read a manifest from `to_parquet`. None if it is missing, damaged, or from another program or release.

    In the receipts, times are rounded to milliseconds, and `staged_path` is the published path.
    """
    if content is None:
        return None
    try:
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        run = file.metadata.metadata[_RUN]
        about, digest = json.loads(run), _Digest(run)
        receipts = Receipts(_listed(file, digest, about["run_id"]))
        if file.metadata.metadata[_DIGEST] != digest.value():
            return None
        return replace(_MANIFEST.validate_python(about | {"receipts": ()}), receipts=receipts)
    except Exception:  # damaged bytes raise anything: ArrowInvalid, OSError, OverflowError, MemoryError
        return None


def _listed(file: pq.ParquetFile, digest: "_Digest", run_id: str) -> Iterator[Receipt]:
    # Without threads, because a pool's thread may abort a process that exits (apache/arrow#34314).
    for batch in file.iter_batches(_AT_ONCE, use_threads=False):
        for line in _lines(batch):
            digest.add(line)
            yield _RECEIPT.validate_python(_receipt(line, line.get("run_id", run_id)))


def joined(there: Manifest | None, own: Manifest) -> Manifest:
    """Return the manifest to publish. `there` is the manifest that the output has, `own` the one of this run.

    If this run is in `there` or extends its dataset, the result also lists the other runs of `there`. Otherwise it is `own`.
    If several runs list a shard, only the receipt of the latest run stays.
    """
    if there is None or not (own.run_id in there.run_ids or there.grows_by(own.spec)):
        return own
    own = replace(own, evidence=there.evidence or own.evidence)
    runs = {run.run_id: run for run in there.runs or (there,)} | {own.run_id: own}
    if len(runs) == 1:
        return own
    order, replaced, lines = [*runs], Counter[str](), []
    kept = (receipt for receipt in there.receipts if receipt.run_id != own.run_id)
    for _, found in groupby(merge(kept, own.receipts, key=_shard), key=_shard):
        *earlier, latest = sorted(found, key=lambda receipt: order.index(receipt.run_id))
        replaced.update(receipt.run_id for receipt in earlier)
        lines.append(latest)
    listed = tuple(run.listed(replaced=replaced[run_id]) for run_id, run in runs.items())
    return replace(
        own,
        run_id=listed[-1].run_id,
        spec=_of_all(listed),
        receipts=Receipts(lines),
        left_out=tuple(name for run in listed for name in run.left_out),
        shards=sum(run.shards for run in listed),
        command="\n\n".join(run.command for run in listed if run.command) or None,
        runs=listed,
    )


def _shard(receipt: Receipt) -> str:
    return receipt.shard


def _of_all(runs: Sequence[ListedRun]) -> RunSpec:
    uris = dict.fromkeys(uri for run in runs for uri in run.spec.input_uris)
    subsets = sorted({name for run in runs for name in run.spec.subset_names})
    return replace(runs[-1].spec, input_uris=tuple(uris), input_revision="", crawl=None, subsets=tuple(subsets))


def last_manifest(copies: Mapping[str, Manifest | None]) -> Manifest | None:
    """Restore a lost manifest from the copies that runs keep, given by run id. None if no copy can be read.

    A run keeps the manifest that it extends, and later the manifest that it publishes.
    """
    found = {run_id: copy for run_id, copy in copies.items() if copy}
    if not found:
        return None
    last = max(found.values(), key=lambda copy: len(copy.run_ids))
    for run_id, copy in found.items():  # a run's own copy is the best source of its lines
        for own in (run.listed() for run in copy.runs or (copy,) if run.run_id == run_id):
            last = joined(last, replace(last, **vars(own), receipts=copy.receipts_of(run_id), runs=()))
    return last


def replaced_files(before: Manifest | None, after: Manifest | None) -> list[str]:
    """Return the paths that the manifest `before` lists and `after` does not. These files are to be removed."""
    if before is None or after is None:
        return []
    there, here = ({file.path for file in files_of(found.receipts)} for found in (before, after))
    return sorted(there - here)


def is_outdated(before: Manifest | None, after: Manifest | None, run_id: str) -> bool:
    """Return whether publishing `after` in place of `before` would lose receipts of runs other than `run_id`.

    Receipts of shards that `run_id` has scored again do not count as lost. Nothing counts as lost if
    `Manifest.gives_way_to` allows the run to replace the dataset.
    """
    if before is None or after is None or before.gives_way_to(after.spec):
        return False
    own = {receipt.shard for receipt in after.receipts_of(run_id)}
    here = {file for receipt in after.receipts for file in digests(receipt)}
    others = (receipt for receipt in before.receipts if receipt.run_id != run_id and receipt.shard not in own)
    return any(not is_among(receipt, here) for receipt in others)


def findings(
    run_id: str,
    receipts: Sequence[Receipt],
    stored: Mapping[str, StoredFile],
    content: bytes | None,
    card: bytes | None,
    *,
    last: Callable[[], Manifest | None],
) -> Iterator[Finding]:
    """Find what is wrong with an output. It should hold these receipts' files, a manifest that lists them, and a card.

    `content` is the content of the manifest. If it cannot be read, `last` is called for the last manifest that was
    published. Files of other runs that the manifest lists are not checked.
    """
    manifest = read_manifest(content)
    listed = manifest or last()
    own, others = receipts, set[str]()
    if listed and run_id in listed.run_ids:
        own = listed.current(run_id, receipts)
        others = {file.path for one in listed.receipts if one.run_id != run_id for file in output_files(one)}
        others -= {file.path for receipt in own for file in output_files(receipt)}
    yield from compare(own, {path: file for path, file in stored.items() if path not in others})
    if content is None:
        yield Finding(path=MANIFEST_PATH, problem=Problem.MISSING)
    elif manifest is None:
        yield Finding(path=MANIFEST_PATH, problem=Problem.UNREADABLE)
    elif run_id not in manifest.run_ids:
        yield Finding(path=MANIFEST_PATH, problem=Problem.FOREIGN, detail=f"it is of the run {manifest.run_id}")
    elif files_digest(manifest.receipts_of(run_id, *{one.run_id for one in own})) != files_digest(own):
        yield Finding(path=MANIFEST_PATH, problem=Problem.SHA256, detail="it lists other files than those of the run")
    if card is None:
        yield Finding(path=CARD_PATH, problem=Problem.MISSING)
    elif not is_readable_card(card):
        yield Finding(path=CARD_PATH, problem=Problem.UNREADABLE, detail="it is not text")
    elif manifest and manifest.card_sha256 != sha256(card).hexdigest():
        yield Finding(path=CARD_PATH, problem=Problem.EDITED)


def files_digest(receipts: Sequence[Receipt]) -> str:
    """Return a digest of the path and sha256 of every file.

    The order and other fields of the receipts do not matter.
    """
    return _hashed(f"{file.path} {file.sha256}" for receipt in receipts for file in (receipt.data, receipt.scores))


def scores_revision(receipts: Sequence[Receipt]) -> str:
    """Return a digest of the path and sha256 of every scores file.

    Another filter of the same scores gives the same digest.
    """
    return folder_revision(_hashed(f"{one.scores.path} {one.scores.sha256}" for one in receipts))


def _hashed(lines: Iterable[str]) -> str:
    """Hash lines in sorted order, without a second copy of them in memory."""
    total, before = sha256(), ""
    for line in sorted(lines):
        total.update(f"{before}{line}".encode())
        before = "\n"
    return total.hexdigest()


class _Digest:
    """A digest of rows as one JSON list, with only one row in memory at a time.

    Takes rows as pyarrow reads them, also before they are written, so that writer and reader get the same digest.
    """

    def __init__(self, run: bytes) -> None:
        self._sha256 = sha256(run + b"\n")
        self._before = "["

    def add(self, line: dict[str, Any]) -> None:
        self._sha256.update(f"{self._before}{json.dumps(line, default=str, sort_keys=True)}".encode())
        self._before = ", "

    def value(self) -> bytes:
        self._sha256.update(b"]" if self._before == ", " else b"[]")
        return self._sha256.hexdigest().encode()


def _lines(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    return batch.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]


def _line(receipt: Receipt) -> dict[str, Any]:
    earlier = receipt.scores_provenance and _made(receipt.scores_provenance)
    return {**asdict(receipt), **_made(receipt.provenance), "scores_provenance": earlier}


def _made(provenance: Provenance) -> dict[str, Any]:
    made = asdict(provenance)
    return made | {name: round(made[name] * 1000) for name in _TIMES}


def _receipt(line: dict[str, Any], run_id: str) -> dict[str, Any]:
    files = {kind: {**line[kind], "staged_path": line[kind]["path"]} for kind in ("data", "scores")}
    earlier = line.get("scores_provenance")
    provenances = {"provenance": _with_times(line), "scores_provenance": earlier and _with_times(earlier)}
    return {**line, **files, **provenances, "run_id": run_id}


def _with_times(made: dict[str, Any]) -> dict[str, Any]:
    return made | {name: made[name].timestamp() for name in _TIMES}
