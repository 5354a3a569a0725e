"""The life of one shard, from its claim to its receipt. A worker may die between any two lines, and all may run twice."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fleet.columns import kept_schema
from fleet.errors import ShardError, UsageError
from fleet.filter import Filter
from fleet.ledger import Claim
from fleet.receipt import OutputFile, Provenance, Receipt
from fleet.shard import Shard
from fleet.spec import RunSpec
from fleet.storage.opening import open_output, open_parquet
from fleet.storage.output import Output
from worker.lease import Lease
from worker.reader import read_windows
from worker.scoring import Scorer, Scores
from worker.writer import RowCounts, ShardWriter, WrittenFile, with_scores

_VERSIONS_OF = ("shardsift", "torch", "transformers", "pyarrow")


def score_shard(claim: Claim, scorer: Scorer, lease: Lease, *, worker: str, scratch_dir: Path | None) -> Receipt:
    """Read, score, filter, write, stage; the receipt is all that is left to record.

    Raises ShardError, TransientError, LeaseLost or Stopped.
    """
    started_at = time.time()
    spec, shard = claim.spec, claim.shard
    with (
        _usage_errors_told_of(shard),
        tempfile.TemporaryDirectory(prefix="shardsift-", dir=scratch_dir) as scratch,
        open_parquet(shard.uri) as parquet,
    ):
        writer = ShardWriter(Path(scratch), parquet.schema_arrow, spec)
        keep = _filter(spec, parquet.schema_arrow)
        for window in read_windows(parquet, shard, spec):
            scores = scorer.score(_texts(window.rows.column(spec.text_column)), lease.on_batch)
            scored = with_scores(window.rows, scores, spec)
            writer.write(scored, _kept_rows(keep, scored, scores), window, scores)
            lease.on_window()
        data, side = writer.close()
        lease.check()
        output = open_output(spec.output_uri, claim.run_id)
        provenance = _provenance(claim, scorer, worker, started_at)
        receipt = _staged(output, claim, (data, side), writer.counts, provenance)
    output.keep_receipt(receipt)
    return receipt


@contextmanager
def _usage_errors_told_of(shard: Shard) -> Iterator[None]:
    """The spec was checked against the first shard; what is wrong with it here, this shard's columns or rows show."""
    try:
        yield
    except UsageError as error:
        raise ShardError(f"Shard {shard.name}: {error}") from error


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    """Bytes that are no UTF-8, which Parquet does not forbid, are read as U+FFFD; the row keeps them."""
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        texts = column.cast(pa.large_string()).cast(pa.large_binary()).to_pylist()
        return [text if text is None else text.decode(errors="replace") for text in texts]


def _filter(spec: RunSpec, input_schema: pa.Schema) -> Filter | None:
    return Filter(spec.where, kept_schema(input_schema, spec)) if spec.where else None


def _kept_rows(keep: Filter | None, scored: pa.Table, scores: Scores) -> npt.NDArray[np.int64]:
    """Rows that pass the filter; a row without a score is never kept."""
    passed = keep.keep(scored) if keep else np.arange(len(scored), dtype=np.int64)
    return np.setdiff1d(passed, np.array(list(scores.errors), dtype=np.int64))


def _provenance(claim: Claim, scorer: Scorer, worker: str, started_at: float) -> Provenance:
    return Provenance(
        worker=worker,
        attempt=claim.attempt,
        device=scorer.device_name,
        dtype=str(scorer.dtype).removeprefix("torch."),
        versions={package: version(package) for package in _VERSIONS_OF},
        started_at=started_at,
        finished_at=time.time(),
    )


def _staged(
    output: Output,
    claim: Claim,
    files: tuple[WrittenFile, WrittenFile],
    counts: RowCounts,
    provenance: Provenance,
) -> Receipt:
    attempt = f"{claim.token}-{uuid4().hex[:8]}"  # tokens alone would repeat after a loss of Redis
    data, side = (
        _stage(output, written, path, attempt)
        for written, path in zip(files, (claim.shard.data_path, claim.shard.scores_path), strict=True)
    )
    return Receipt(
        run_id=claim.run_id,
        shard=claim.shard.name,
        source_uri=claim.shard.uri,
        data=data,
        scores=side,
        rows_in=counts.rows_in,
        rows_kept=counts.rows_kept,
        rows_dropped=counts.rows_dropped,
        rows_errored=counts.rows_errored,
        errors=counts.errors,
        provenance=provenance,
    )


def _stage(output: Output, written: WrittenFile, path: str, attempt: str) -> OutputFile:
    staged_path = output.stage(written.file, path, attempt=attempt)
    return OutputFile(
        path=path, staged_path=staged_path, size_bytes=written.size_bytes, sha256=written.sha256, rows=written.rows
    )
