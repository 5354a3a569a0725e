"""The life of one shard, from its claim to its receipt. A worker may die between any two lines, and all may run twice."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from fleet.columns import kept_schema
from fleet.disclosure import disclosed_source
from fleet.errors import ShardError, UsageError
from fleet.filter import Filter
from fleet.ledger.records import Claim
from fleet.receipt import OutputFile, Provenance, Receipt
from fleet.shard import Shard
from fleet.spec import RunSpec
from fleet.storage.identity import unchanged
from fleet.storage.opening import open_parquet
from fleet.storage.output import Output
from worker.scoring import EncodedRows, Scores
from worker.scoring.tokenizing.texts import plain_texts
from worker.shard.blank import encode_visible
from worker.shard.checkpoint import Checkpoint
from worker.shard.pipelining import in_background, prefetched
from worker.shard.progress import Progress
from worker.shard.provenance import provenance
from worker.shard.reader import Window, read_windows
from worker.shard.scratch import scratch_folder
from worker.shard.text_digest import text_digest
from worker.shard.writer import RowCounts, ShardWriter, WrittenFile, with_scores

if TYPE_CHECKING:
    from worker.scoring import Scorer


def score_shard(
    claim: Claim,
    scorer: "Scorer",
    progress: Progress,
    checkpoint: Checkpoint,
    output: Output,
    *,
    worker: str,
    scratch_dir: Path | None,
) -> Receipt:
    """Read, score, filter, write, stage; the receipt is all that is left to record.

    Raises ShardError, TransientError, LeaseLost or Stopped.
    """
    started_at = time.time()
    spec, shard = claim.spec, claim.shard
    with _usage_errors_told_of(shard), scratch_folder(scratch_dir) as scratch:
        with unchanged(shard), open_parquet(shard.uri) as parquet:
            writer = ShardWriter(scratch, parquet.schema_arrow, shard, spec)
            _write_windows(parquet, writer, claim, scorer, progress, checkpoint)
        files = writer.close()
        progress.check()
        made = provenance(claim, scorer, worker=worker, started_at=started_at)
        receipt = _staged(output, claim, files, writer.counts, made, progress)
    output.store_receipt(receipt)
    return receipt


def _write_windows(
    parquet: pq.ParquetFile,
    writer: ShardWriter,
    claim: Claim,
    scorer: "Scorer",
    progress: Progress,
    checkpoint: Checkpoint,
) -> None:
    spec = claim.spec
    keep = _filter(spec, parquet.schema_arrow)
    with (
        prefetched(read_windows(parquet, claim.shard, spec), "reader") as windows,
        prefetched(_prepared(windows, scorer, checkpoint, spec), "tokenizer") as prepared_windows,
        in_background(partial(_write, writer, keep, claim), "writer") as write,
    ):
        for prepared in prepared_windows:
            scores = _scored(prepared, scorer, progress, checkpoint)
            progress.check()
            write(prepared.window, scores)
            progress.on_window()


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """A window on its way to the device: its tokens, unless an earlier attempt left all of its scores."""

    window: Window
    digest: str  # of its texts
    earlier: Scores | None
    encoded: EncodedRows | None


@contextmanager
def _usage_errors_told_of(shard: Shard) -> Iterator[None]:
    """The spec was checked against the first shard; what is wrong with it here, this shard's columns or rows show."""
    try:
        yield
    except UsageError as error:
        raise ShardError(f"Shard {shard.name}: {error}") from error


def _prepared(
    windows: Iterator[Window], scorer: "Scorer", checkpoint: Checkpoint, spec: RunSpec
) -> Iterator[_Prepared]:
    for window in windows:
        texts = plain_texts(window.rows.column(spec.text_column))
        digest = text_digest(texts)
        earlier = checkpoint.scores_of(window.first_row, len(texts), digest)
        if earlier is not None and earlier.complete:
            encoded = None
        else:
            encoded = scorer.encode(texts) if spec.score_blank else encode_visible(scorer, texts)
        yield _Prepared(window=window, digest=digest, earlier=earlier, encoded=encoded)


def _scored(prepared: _Prepared, scorer: "Scorer", progress: Progress, checkpoint: Checkpoint) -> Scores:
    """The window's scores; not all of them where the work is to end here, and then what there is, is kept."""
    if prepared.encoded is None and prepared.earlier is not None:
        progress.on_batch(len(prepared.window.rows))
        return prepared.earlier
    assert prepared.encoded is not None
    scores = scorer.score_encoded(prepared.encoded, progress.on_batch, prepared.earlier)
    checkpoint.store(prepared.window.first_row, scores, prepared.digest)
    return scores


def _filter(spec: RunSpec, input_schema: pa.Schema) -> Filter | None:
    return Filter(spec.where, kept_schema(input_schema, spec)) if spec.where else None


def _write(writer: ShardWriter, keep: Filter | None, claim: Claim, window: Window, scores: Scores) -> None:
    scored = with_scores(window, scores, claim.shard, claim.spec)
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
    progress: Progress,
) -> Receipt:
    data, side = (
        _stage(output, written, path, claim.token, progress)
        for written, path in zip(files, (claim.shard.data_path, claim.shard.scores_path), strict=True)
    )
    return Receipt(
        run_id=claim.run_id,
        shard=claim.shard.name,
        source_uri=disclosed_source(claim.spec, claim.shard),
        source_identity=claim.shard.identity,
        source_changed=claim.shard.changed,
        data=data,
        scores=side,
        rows_in=counts.rows_in,
        rows_kept=counts.rows_kept,
        rows_dropped=counts.rows_dropped,
        rows_errored=counts.rows_errored,
        errors=counts.errors,
        score_histogram=counts.score_histogram,
        provenance=made,
    )


def _stage(output: Output, written: WrittenFile, path: str, attempt: str, progress: Progress) -> OutputFile:
    staged_path = output.stage(written.file, path, attempt=attempt)
    progress.on_progress()
    return OutputFile(
        path=path, staged_path=staged_path, size_bytes=written.size_bytes, sha256=written.sha256, rows=written.rows
    )
