"""The manifest: one line per shard, from the receipts and back. It is published with the data and proves what that is.

A manifest proves itself too: one digest covers everything that is read from it, and `read_manifest` checks it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from fleet.run.receipt import Receipt
from fleet.run.spec import RunSpec, disclosed_spec
from fleet.storage.inspection import Finding, Problem, StoredFile, compare, files_of, is_text
from fleet.storage.output import CARD_PATH, MANIFEST_PATH

_RUN = b"shardsift.run"  # JSON: what the manifest says beside its lines
_DIGEST = b"shardsift.sha256"

# The columns have the names and the nesting of `Receipt`, but the provenance is not nested.
_TIME = pa.timestamp("ms", tz="UTC")
_TIMES = ("started_at", "finished_at")
_FILE = pa.struct({"path": pa.string(), "size_bytes": pa.int64(), "sha256": pa.string(), "rows": pa.int64()})
_HISTOGRAM = pa.struct({"bins_per_unit": pa.int64(), "rows_by_bin": pa.map_(pa.int64(), pa.int64())})
_PARITY = pa.struct(
    {"rows": pa.int64(), "max_error": pa.float64(), "p999_error": pa.float64(), "flipped_share": pa.float64()}
)
_SCORING = pa.struct(
    {
        "score_column": pa.string(),
        "dtype": pa.string(),
        "backend": pa.string(),
        "max_batch_tokens": pa.int64(),
        "parity": _PARITY,
        "refused_dtypes": pa.list_(pa.string()),
        "histogram": _HISTOGRAM,
        "label_histograms": pa.list_(_HISTOGRAM),
    }
)
_SCHEMA = pa.schema(
    {
        "shard": pa.string(),
        "source_uri": pa.string(),
        "source_identity": pa.string(),
        "source_changed": pa.bool_(),
        "first_row": pa.int64(),
        "rows_in": pa.int64(),
        "rows_kept": pa.int64(),
        "rows_dropped": pa.int64(),
        "rows_errored": pa.int64(),
        "errors": pa.map_(pa.string(), pa.int64()),
        "scorings": pa.list_(_SCORING),
        "data": _FILE,
        "scores": _FILE,
        "worker": pa.string(),
        "attempt": pa.int64(),
        "device": pa.string(),
        "versions": pa.map_(pa.string(), pa.string()),
        "started_at": _TIME,
        "finished_at": _TIME,
    }
)
_DATA_FIRST_ROW = pa.field("data_first_row", pa.int64())  # only of a run that merges shards into files


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The manifest of a published run."""

    run_id: str
    spec: RunSpec  # as far as it is disclosed
    receipts: tuple[Receipt, ...]
    left_out: tuple[str, ...] = ()  # shards that failed, if the run is published without them
    shards: int  # of the run: as many as it lists and leaves out
    card_sha256: str

    @property
    def digest(self) -> str:
        """Over the path and sha256 of every file."""
        return files_digest(self.receipts)

    def to_parquet(self) -> bytes:
        """A Parquet file with a line per receipt. Its metadata hold the rest, and the digest of all of it."""
        about = {
            "run_id": self.run_id,
            "spec": json.loads(disclosed_spec(self.spec).to_json()),
            "left_out": self.left_out,
            "shards": self.shards,
            "card_sha256": self.card_sha256,
        }
        schema = _SCHEMA if self.spec.target_file_bytes is None else _SCHEMA.append(_DATA_FIRST_ROW)
        run, table = json.dumps(about).encode(), pa.Table.from_pylist([*map(_line, self.receipts)], schema=schema)
        table = table.replace_schema_metadata({_RUN: run, _DIGEST: _digest(run, _lines(table))})
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


_MANIFEST = TypeAdapter(Manifest)


def read_manifest(content: bytes | None) -> Manifest | None:
    """The manifest written by `to_parquet`; None if there is none, it is damaged, or another program or release wrote it.

    In its receipts, times are in whole milliseconds, and `staged_path` is the place where the file is now.
    """
    if content is None:
        return None
    try:
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        table = file.read(use_threads=False)  # a pool's thread may abort a process that exits (apache/arrow#34314)
        run, lines = table.schema.metadata[_RUN], _lines(table)
        if table.schema.metadata[_DIGEST] != _digest(run, lines):
            return None
        about = json.loads(run)
        return _MANIFEST.validate_python(about | {"receipts": [_receipt(line, about["run_id"]) for line in lines]})
    except Exception:  # damaged bytes raise anything: ArrowInvalid, OSError, OverflowError, MemoryError
        return None


def receipts_listed(content: bytes | None, run_id: str) -> Sequence[Receipt]:
    """The receipts that a published manifest was made of; none if it is damaged or another run's."""
    manifest = read_manifest(content)
    return manifest.receipts if manifest and manifest.run_id == run_id else ()


def replaced_files(content: bytes | None, run_id: str, receipts: Sequence[Receipt]) -> list[str]:
    """The files that a run has published, and that it no longer has, because their rows are in other files now."""
    manifest = read_manifest(content)
    if manifest is None or manifest.run_id != run_id or manifest.spec.target_file_bytes is None:
        return []
    before, now = ({file.path for file in files_of(found)} for found in (manifest.receipts, receipts))
    return sorted(before - now)


def findings(
    run_id: str,
    receipts: Sequence[Receipt],
    stored: Mapping[str, StoredFile],
    content: bytes | None,
    card: bytes | None,
) -> Iterator[Finding]:
    """Find what is wrong with an output that should hold these receipts' files, the manifest that lists them, and a card.

    `content` is that of the manifest.
    """
    yield from compare(receipts, stored)
    manifest = read_manifest(content)
    if content is None:
        yield Finding(path=MANIFEST_PATH, problem=Problem.MISSING)
    elif manifest is None:
        yield Finding(path=MANIFEST_PATH, problem=Problem.UNREADABLE)
    elif manifest.run_id != run_id:
        yield Finding(path=MANIFEST_PATH, problem=Problem.FOREIGN, detail=f"it is of the run {manifest.run_id}")
    elif manifest.digest != files_digest(receipts):
        yield Finding(path=MANIFEST_PATH, problem=Problem.SHA256, detail="it lists other files than those of the run")
    if card is None:
        yield Finding(path=CARD_PATH, problem=Problem.MISSING)
    elif not is_text(card):
        yield Finding(path=CARD_PATH, problem=Problem.UNREADABLE, detail="it is not text")
    elif manifest and manifest.card_sha256 != sha256(card).hexdigest():
        yield Finding(path=CARD_PATH, problem=Problem.EDITED)


def files_digest(receipts: Sequence[Receipt]) -> str:
    """Hash the path and sha256 of every file. The order of the receipts and the worker that made each do not matter."""
    lines = sorted(f"{file.path} {file.sha256}" for receipt in receipts for file in (receipt.data, receipt.scores))
    return sha256("\n".join(lines).encode()).hexdigest()


def _digest(run: bytes, lines: list[dict[str, Any]]) -> bytes:
    """Hash what pyarrow reads of the file, not its bytes: those hold the metadata twice, raw and in base64."""
    content = run + b"\n" + json.dumps(lines, default=str, sort_keys=True).encode()
    return sha256(content).hexdigest().encode()


def _lines(table: pa.Table) -> list[dict[str, Any]]:
    return table.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]


def _line(receipt: Receipt) -> dict[str, Any]:
    made = asdict(receipt.provenance)
    return {**asdict(receipt), **made, **{name: round(made[name] * 1000) for name in _TIMES}}


def _receipt(line: dict[str, Any], run_id: str) -> dict[str, Any]:
    """The fields of the receipt that a line was made of."""
    files = {kind: {**line[kind], "staged_path": line[kind]["path"]} for kind in ("data", "scores")}
    made = {**line, **{name: line[name].timestamp() for name in _TIMES}}
    return {**line, **files, "run_id": run_id, "provenance": made}
