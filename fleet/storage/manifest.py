"""The manifest: one line per shard, from the receipts and back. It is published with the data and proves what that is.

A manifest proves itself too: one digest covers everything that is read from it, and `read_manifest` checks it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from fleet.run.disclosure import disclosed_spec
from fleet.run.receipt import Histogram, OutputFile, Parity, Provenance, Receipt, ScoringReceipt
from fleet.run.spec import RunSpec
from fleet.storage.inspection import Finding, Problem, is_text
from fleet.storage.output import CARD_PATH, MANIFEST_PATH

_RUN = b"shardsift.run"  # JSON: what the manifest says beside its lines
_DIGEST = b"shardsift.sha256"

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
        ("label_rows_by_bin", pa.list_(pa.map_(pa.int64(), pa.int64()))),
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


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a run has published."""

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
        run, table = json.dumps(about).encode(), pa.Table.from_pylist([*map(_line, self.receipts)], schema=_SCHEMA)
        table = table.replace_schema_metadata({_RUN: run, _DIGEST: _digest(run, table.to_pylist())})
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
        run, lines = table.schema.metadata[_RUN], table.to_pylist()
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


def document_findings(
    content: bytes | None, card: bytes | None, run_id: str, receipts: Sequence[Receipt]
) -> Iterator[Finding]:
    """What is wrong with the manifest that should list these receipts, and with the card. Missing files are None."""
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
        "label_rows_by_bin": [list(histogram.rows_by_bin.items()) for histogram in scoring.label_histograms],
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
        histogram=_histogram(line, line["rows_by_bin"]),
        label_histograms=tuple(_histogram(line, bins) for bins in line.get("label_rows_by_bin") or ()),  # as above
        **{name: line[name] for name in _SAME_IN_SCORING},
    )


def _histogram(line: dict[str, Any], bins: list[tuple[int, int]]) -> Histogram:
    return Histogram(bins_per_unit=line["bins_per_unit"], rows_by_bin=dict(bins))


def _parity(line: dict[str, Any]) -> Parity | None:
    found = {field.name: line[f"parity_{field.name}"] for field in fields(Parity)}
    return None if found["rows"] is None else Parity(**found)


def _seconds(moment: datetime) -> float:
    return moment.timestamp()
