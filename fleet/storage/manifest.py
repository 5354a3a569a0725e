"""The manifest: one line a shard, from the receipts. It is published with the data and proves what that is."""

from dataclasses import asdict

import pyarrow as pa
import pyarrow.parquet as pq

from fleet.receipt import Parity, Receipt
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
    """A Parquet file whose metadata hold the RunSpec and the mark."""
    table = pa.Table.from_pylist([_line(receipt) for receipt in receipts], schema=_SCHEMA)
    table = table.replace_schema_metadata({**mark.as_metadata(), b"shardsift.spec": spec.to_json()})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


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
        "started_at": int(made.started_at * 1000),
        "finished_at": int(made.finished_at * 1000),
    }


def _parity_columns(parity: Parity | None) -> dict[str, object]:
    return {f"parity_{name}": value for name, value in asdict(parity).items()} if parity else {}
