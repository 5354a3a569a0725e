"""The manifest: one line a shard, from the receipts and back. It is published with the data and proves what that is."""

from dataclasses import asdict, fields
from datetime import datetime
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from fleet.disclosure import disclosed_spec
from fleet.receipt import OutputFile, Parity, Provenance, Receipt
from fleet.spec import RunSpec
from fleet.storage.output import Mark

_TIME = pa.timestamp("ms", tz="UTC")
_SCHEMA = pa.schema(
    [
        ("shard", pa.string()),
        ("source_uri", pa.string()),
        ("rows_in", pa.int64()),
        ("rows_kept", pa.int64()),
        ("rows_dropped", pa.int64()),
        ("rows_errored", pa.int64()),
        ("errors", pa.map_(pa.string(), pa.int64())),
        ("data_path", pa.string()),
        ("data_size_bytes", pa.int64()),
        ("data_sha256", pa.string()),
        ("scores_path", pa.string()),
        ("scores_size_bytes", pa.int64()),
        ("scores_sha256", pa.string()),
        ("worker", pa.string()),
        ("attempt", pa.int64()),
        ("device", pa.string()),
        ("dtype", pa.string()),
        ("backend", pa.string()),
        ("max_batch_tokens", pa.int64()),
        ("parity_rows", pa.int64()),
        ("parity_max_error", pa.float64()),
        ("parity_p999_error", pa.float64()),
        ("parity_flipped_share", pa.float64()),
        ("versions", pa.map_(pa.string(), pa.string())),
        ("started_at", _TIME),
        ("finished_at", _TIME),
    ]
)


def manifest(spec: RunSpec, receipts: list[Receipt], mark: Mark) -> bytes:
    """A Parquet file whose metadata hold the spec, as far as it is disclosed, and the mark."""
    table = pa.Table.from_pylist([_line(receipt) for receipt in receipts], schema=_SCHEMA)
    table = table.replace_schema_metadata({**mark.as_metadata(), b"shardsift.spec": disclosed_spec(spec).to_json()})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def receipts_listed(manifest: BinaryIO, run_id: str) -> list[Receipt]:
    """The receipts that a published manifest was made of; none where it is another run's, or nobody's we know.

    Times come back in whole milliseconds, and as `staged_path` the place where the file is now.
    """
    mark = Mark.read_from(manifest)
    if mark is None or mark.run_id != run_id:
        return []
    return [_receipt(line, run_id) for line in pq.read_table(manifest).to_pylist()]


def _line(receipt: Receipt) -> dict[str, object]:
    made = receipt.provenance
    return {
        "shard": receipt.shard,
        "source_uri": receipt.source_uri,
        "rows_in": receipt.rows_in,
        "rows_kept": receipt.rows_kept,
        "rows_dropped": receipt.rows_dropped,
        "rows_errored": receipt.rows_errored,
        "errors": list(receipt.errors.items()),
        "data_path": receipt.data.path,
        "data_size_bytes": receipt.data.size_bytes,
        "data_sha256": receipt.data.sha256,
        "scores_path": receipt.scores.path,
        "scores_size_bytes": receipt.scores.size_bytes,
        "scores_sha256": receipt.scores.sha256,
        "worker": made.worker,
        "attempt": made.attempt,
        "device": made.device,
        "dtype": made.dtype,
        "backend": made.backend,
        "max_batch_tokens": made.max_batch_tokens,
        **_parity_columns(made.parity),
        "versions": list(made.versions.items()),
        "started_at": round(made.started_at * 1000),
        "finished_at": round(made.finished_at * 1000),
    }


def _parity_columns(parity: Parity | None) -> dict[str, object]:
    return {f"parity_{name}": value for name, value in asdict(parity).items()} if parity else {}


def _receipt(line: dict[str, Any], run_id: str) -> Receipt:
    return Receipt(
        run_id=run_id,
        data=_file(line, "data", rows=line["rows_kept"]),
        scores=_file(line, "scores", rows=line["rows_in"]),
        errors=dict(line["errors"]),
        provenance=_provenance(line),
        **{
            name: line[name] for name in ("shard", "source_uri", "rows_in", "rows_kept", "rows_dropped", "rows_errored")
        },
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
        parity=_parity(line),
        versions=dict(line["versions"]),
        started_at=_seconds(line["started_at"]),
        finished_at=_seconds(line["finished_at"]),
        **{name: line[name] for name in ("worker", "attempt", "device", "dtype", "backend", "max_batch_tokens")},
    )


def _parity(line: dict[str, Any]) -> Parity | None:
    found = {field.name: line[f"parity_{field.name}"] for field in fields(Parity)}
    return None if found["rows"] is None else Parity(**found)


def _seconds(moment: datetime) -> float:
    return moment.timestamp()
