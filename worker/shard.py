"""The life of one shard, from its claim to its receipt. A worker may die between any two lines, and all may run twice."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
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
from worker.overlap import ahead, behind
from worker.provenance import provenance
from worker.reader import Window, read_windows
from worker.scoring import EncodedRows, Scorer, Scores
from worker.writer import RowCounts, ShardWriter, WrittenFile, with_scores


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
        with (
            ahead(read_windows(parquet, shard, spec), "reader") as windows,
            ahead(_encoded(windows, scorer, spec), "tokenizer") as encoded_windows,
            behind(partial(_write, writer, keep, spec), "writer") as write,
        ):
            for window, encoded in encoded_windows:
                write(window, scorer.score_encoded(encoded, lease.on_batch))
                lease.on_window()
        data, side = writer.close()
        lease.check()
        output = open_output(spec.output_uri, claim.run_id)
        made = provenance(claim, scorer, worker=worker, started_at=started_at)
        receipt = _staged(output, claim, (data, side), writer.counts, made)
    output.keep_receipt(receipt)
    return receipt


@contextmanager
def _usage_errors_told_of(shard: Shard) -> Iterator[None]:
    """The spec was checked against the first shard; what is wrong with it here, this shard's columns or rows show."""
    try:
        yield
    except UsageError as error:
        raise ShardError(f"Shard {shard.name}: {error}") from error


def _encoded(windows: Iterator[Window], scorer: Scorer, spec: RunSpec) -> Iterator[tuple[Window, EncodedRows]]:
    return ((window, scorer.encode(window.rows.column(spec.text_column))) for window in windows)


def _filter(spec: RunSpec, input_schema: pa.Schema) -> Filter | None:
    return Filter(spec.where, kept_schema(input_schema, spec)) if spec.where else None


def _write(writer: ShardWriter, keep: Filter | None, spec: RunSpec, window: Window, scores: Scores) -> None:
    scored = with_scores(window.rows, scores, spec)
    writer.write(scored, _kept_rows(keep, scored, scores), window, scores)


def _kept_rows(keep: Filter | None, scored: pa.Table, scores: Scores) -> npt.NDArray[np.int64]:
    """Rows that pass the filter; a row without a score is never kept."""
    passed = keep.keep(scored) if keep else np.arange(len(scored), dtype=np.int64)
    return np.setdiff1d(passed, np.array(list(scores.errors), dtype=np.int64))


def _staged(
    output: Output,
    claim: Claim,
    files: tuple[WrittenFile, WrittenFile],
    counts: RowCounts,
    made: Provenance,
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
        provenance=made,
    )


def _stage(output: Output, written: WrittenFile, path: str, attempt: str) -> OutputFile:
    staged_path = output.stage(written.file, path, attempt=attempt)
    return OutputFile(
        path=path, staged_path=staged_path, size_bytes=written.size_bytes, sha256=written.sha256, rows=written.rows
    )
