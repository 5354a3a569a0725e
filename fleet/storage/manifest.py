"""The manifest: one line per shard, from the receipts and back. It is published with the data and proves what that is.

A manifest proves itself too: its metadata hold a digest of its lines, so that damage to any of them shows.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fleet.disclosure import disclosed_spec
from fleet.histogram import Histogram
from fleet.receipt import OutputFile, Parity, Provenance, Receipt, ScoringReceipt
from fleet.spec import RunSpec
from fleet.storage.inspection import Finding, Problem
from fleet.storage.output import MANIFEST_PATH, Mark

_LINES_DIGEST = b"shardsift.lines_sha256"
_SPEC = b"shardsift.spec"
_LEFT_OUT = b"shardsift.left_out"

_TIME = pa.timestamp("ms", tz="UTC")
_SOURCE = ("source_uri", "source_identity", "source_changed")
_SAME_IN_SCORING = ("score_column", "dtype", "backend", "max_batch_tokens")
_SAME_IN_BOTH = ("shard", *_SOURCE, "rows_in", "rows_kept", "rows_dropped", "rows_errored")
_SCORING = pa.struct(
    [
        ("score_column", pa.string()),
        ("dtype", pa.string()),
        ("backend", pa.string()),
        ("max_batch_tokens", pa.int64()),
        ("parity_rows", pa.int64()),
        ("parity_max_error", pa.float64()),
        ("parity_p999_error", pa.float64()),
        ("parity_flipped_share", pa.float64()),
        ("refused_dtypes", pa.list_(pa.string())),
        ("bins_per_unit", pa.int64()),
        ("rows_by_bin", pa.map_(pa.int64(), pa.int64())),
    ]
)
_SCHEMA = pa.schema(
    [
        ("shard", pa.string()),
        ("source_uri", pa.string()),
        ("source_identity", pa.string()),
        ("source_changed", pa.bool_()),
        ("rows_in", pa.int64()),
        ("rows_kept", pa.int64()),
        ("rows_dropped", pa.int64()),
        ("rows_errored", pa.int64()),
        ("errors", pa.map_(pa.string(), pa.int64())),
        ("scorings", pa.list_(_SCORING)),
        ("data_path", pa.string()),
        ("data_size_bytes", pa.int64()),
        ("data_sha256", pa.string()),
        ("scores_path", pa.string()),
        ("scores_size_bytes", pa.int64()),
        ("scores_sha256", pa.string()),
        ("worker", pa.string()),
        ("attempt", pa.int64()),
        ("device", pa.string()),
        ("versions", pa.map_(pa.string(), pa.string())),
        ("started_at", _TIME),
        ("finished_at", _TIME),
    ]
)


def manifest(spec: RunSpec, receipts: Sequence[Receipt], mark: Mark, *, left_out: Sequence[str] = ()) -> bytes:
    """A Parquet file whose metadata hold the spec, as far as it is disclosed, the mark and the digest of its lines.

    `left_out` names the shards that failed, if the run is published without them.
    """
    table = pa.Table.from_pylist([_line(receipt) for receipt in receipts], schema=_SCHEMA)
    about = {_SPEC: disclosed_spec(spec).to_json(), _LEFT_OUT: json.dumps(list(left_out)).encode()}
    table = table.replace_schema_metadata({**mark.as_metadata(), **about, _LINES_DIGEST: _digest(table.to_pylist())})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def mark_of(manifest: bytes) -> Mark | None:
    """The mark of a manifest; None for a damaged file or one that shardsift did not write."""
    try:
        return Mark.read_from(pa.BufferReader(manifest))
    except Exception:  # damaged bytes raise anything: ArrowInvalid, OSError, OverflowError, MemoryError
        return None


def spec_of(manifest: bytes) -> RunSpec | None:
    """The spec that a manifest discloses; None for what shardsift did not write, or an earlier release did."""
    try:
        return RunSpec.from_json(pq.read_schema(pa.BufferReader(manifest)).metadata[_SPEC])
    except Exception:  # as above
        return None


def receipts_listed(manifest: bytes, run_id: str) -> list[Receipt]:
    """The receipts that a published manifest was made of; none if it is damaged or another run's.

    Times come back in whole milliseconds, and as `staged_path` the place where the file is now.
    """
    mark = mark_of(manifest)
    if mark is None or mark.run_id != run_id:
        return []
    try:
        file = pq.ParquetFile(pa.BufferReader(manifest), page_checksum_verification=True)
        table = file.read(use_threads=False)  # a pool's thread may abort a process that exits (apache/arrow#34314)
        lines = table.to_pylist()
        if table.schema.metadata[_LINES_DIGEST] != _digest(lines):
            return []
        return [_receipt(line, run_id) for line in lines]
    except Exception:  # as above
        return []


def left_out_shards(manifest: bytes) -> tuple[str, ...]:
    """The shards that failed, and that the run of a sound manifest was published without."""
    return tuple(json.loads(pq.read_schema(pa.BufferReader(manifest)).metadata.get(_LEFT_OUT, b"[]")))


def manifest_finding(manifest: bytes | None, run_id: str, receipts: Sequence[Receipt]) -> Finding | None:
    """What is wrong with the manifest that should list these receipts; `manifest` is None if there is no such file."""
    if manifest is None:
        return Finding(path=MANIFEST_PATH, problem=Problem.MISSING)
    mark = mark_of(manifest)
    if mark and mark.run_id != run_id:
        return Finding(path=MANIFEST_PATH, problem=Problem.FOREIGN, detail=f"it is of the run {mark.run_id}")
    listed = receipts_listed(manifest, run_id)
    if not listed:
        return Finding(path=MANIFEST_PATH, problem=Problem.UNREADABLE)
    if not mark == Mark.of(run_id, listed) == Mark.of(run_id, receipts):
        return Finding(path=MANIFEST_PATH, problem=Problem.SHA256, detail="it lists other files than those of the run")
    return None


def _digest(lines: list[dict[str, Any]]) -> bytes:
    return hashlib.sha256(json.dumps(lines, default=str, sort_keys=True).encode()).hexdigest().encode()


def _line(receipt: Receipt) -> dict[str, object]:
    made = receipt.provenance
    return {
        "shard": receipt.shard,
        "source_uri": receipt.source_uri,
        "source_identity": receipt.source_identity,
        "source_changed": receipt.source_changed,
        "rows_in": receipt.rows_in,
        "rows_kept": receipt.rows_kept,
        "rows_dropped": receipt.rows_dropped,
        "rows_errored": receipt.rows_errored,
        "errors": list(receipt.errors.items()),
        "scorings": [_scoring_line(scoring) for scoring in receipt.scorings],
        "data_path": receipt.data.path,
        "data_size_bytes": receipt.data.size_bytes,
        "data_sha256": receipt.data.sha256,
        "scores_path": receipt.scores.path,
        "scores_size_bytes": receipt.scores.size_bytes,
        "scores_sha256": receipt.scores.sha256,
        "worker": made.worker,
        "attempt": made.attempt,
        "device": made.device,
        "versions": list(made.versions.items()),
        "started_at": round(made.started_at * 1000),
        "finished_at": round(made.finished_at * 1000),
    }


def _scoring_line(scoring: ScoringReceipt) -> dict[str, object]:
    return {
        **{name: getattr(scoring, name) for name in _SAME_IN_SCORING},
        **_parity_columns(scoring.parity),
        "refused_dtypes": list(scoring.refused_dtypes),
        "bins_per_unit": scoring.histogram.bins_per_unit,
        "rows_by_bin": list(scoring.histogram.rows_by_bin.items()),
    }


def _parity_columns(parity: Parity | None) -> dict[str, object]:
    return {f"parity_{name}": value for name, value in asdict(parity).items()} if parity else {}


def _receipt(line: dict[str, Any], run_id: str) -> Receipt:
    return Receipt(
        run_id=run_id,
        data=_file(line, "data", rows=line["rows_kept"]),
        scores=_file(line, "scores", rows=line["rows_in"]),
        errors=dict(line["errors"]),
        scorings=tuple(map(_scoring, line["scorings"])),
        provenance=_provenance(line),
        **{name: line[name] for name in _SAME_IN_BOTH},
    )


def _file(line: dict[str, Any], kind: str, *, rows: int) -> OutputFile:
    path = line[f"{kind}_path"]
    return OutputFile(
        path=path,
        staged_path=path,
        size_bytes=line[f"{kind}_size_bytes"],
        sha256=line[f"{kind}_sha256"],
        rows=rows,
    )


def _provenance(line: dict[str, Any]) -> Provenance:
    return Provenance(
        versions=dict(line["versions"]),
        started_at=_seconds(line["started_at"]),
        finished_at=_seconds(line["finished_at"]),
        **{name: line[name] for name in ("worker", "attempt", "device")},
    )


def _scoring(line: dict[str, Any]) -> ScoringReceipt:
    return ScoringReceipt(
        parity=_parity(line),
        refused_dtypes=tuple(line.get("refused_dtypes") or ()),  # an earlier version wrote none
        histogram=Histogram(bins_per_unit=line["bins_per_unit"], rows_by_bin=dict(line["rows_by_bin"])),
        **{name: line[name] for name in _SAME_IN_SCORING},
    )


def _parity(line: dict[str, Any]) -> Parity | None:
    found = {field.name: line[f"parity_{field.name}"] for field in fields(Parity)}
    return None if found["rows"] is None else Parity(**found)


def _seconds(moment: datetime) -> float:
    return moment.timestamp()
