"""The life of one shard, from its claim to its receipt. A worker may die between any two lines, and each may run twice."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.inputs.identity import unchanged
from shardsift.fleet.inputs.input_file import InputFile
from shardsift.fleet.inputs.open_input import open_shard
from shardsift.fleet.ledger.records import Claim
from shardsift.fleet.run.filter import filter_of_thread
from shardsift.fleet.run.output_columns import kept_schema, scoring_fields
from shardsift.fleet.run.receipt import OutputFile, Parity, Phase, Provenance, Receipt, ScoringReceipt
from shardsift.fleet.run.scoring import Scoring
from shardsift.fleet.run.spec import RunSpec, Shard, disclosed_source, disclosed_worker
from shardsift.fleet.storage.output import Output
from shardsift.fleet.storage.parquet import WrittenFile
from shardsift.fleet.storage.scratch import scratch_folder
from shardsift.worker.scoring import Scorer, ScorerInfo, Scores
from shardsift.worker.scoring.parity_trial import ParityTrial
from shardsift.worker.shard.checkpoint import Checkpoint
from shardsift.worker.shard.pipelining import in_background, prefetched
from shardsift.worker.shard.reader import Window, read_windows
from shardsift.worker.shard.stored_scores import StoredScores
from shardsift.worker.shard.vitals import Progress, Vitals
from shardsift.worker.shard.window_scoring import Launched, PreparedWindow, WindowScoring
from shardsift.worker.shard.writer import RowCounts, ShardWriter, score_columns

_SOON_SECONDS = 5.0  # for a window; on a slower device, other workers may take the next shard earlier
_VERSIONS_OF = ("shardsift", "torch", "transformers", "pyarrow")


def score_shard(
    claim: Claim,
    scorers: Sequence[Scorer[Any]],
    progress: Progress,
    checkpoint: Checkpoint,
    output: Output,
    *,
    worker: str,
    scratch_dir: Path | None,
) -> Receipt:
    """Read, score, filter, write and stage a shard. The caller only has to record the receipt.

    `scorers` has one scorer for each scoring of the run. Raises ShardError, TransientError, LeaseLost or Stopped.
    """
    started_at = time.time()
    spec, shard = claim.spec, claim.shard
    with _usage_errors_of(shard), scratch_folder(scratch_dir) as scratch:
        opened = open_shard(shard.uri, spec, first_row=shard.first_row)
        with unchanged(shard), opened as file:
            keep = filter_of_thread(spec.where, kept_schema(file.schema, spec)) if spec.where else None
            writer = ShardWriter(scratch, file.schema, shard, spec, keep)
            _write_windows(file, writer, claim, scorers, progress, checkpoint)
        data_file, scores_file = writer.close()
        counts = writer.counts
        progress.check()
        progress.vitals.enter(Phase.STAGE)
        stored = scorers[0].receipt_of(shard.name, shard.identity) if isinstance(scorers[0], StoredScores) else None
        scorings = scoring_receipts(spec, scorers, counts, stored)
        with ThreadPoolExecutor(2, "upload") as both:
            staged_data = both.submit(_stage, data_file, shard.data_path, counts.rows_kept, output, claim, progress)
            staged_scores = both.submit(_stage, scores_file, shard.scores_path, counts.rows_in, output, claim, progress)
            data, scores = staged_data.result(), staged_scores.result()
        made = _provenance(claim, scorers, progress.vitals, worker=worker, started_at=started_at)
        receipt = _receipt(claim, data, scores, counts, scorings, made, stored)
    output.store_receipt(receipt)
    return receipt


def _write_windows(
    file: InputFile,
    writer: ShardWriter,
    claim: Claim,
    scorers: Sequence[Scorer[Any]],
    progress: Progress,
    checkpoint: Checkpoint,
) -> None:
    spec, vitals = claim.spec, progress.vitals
    vitals.counts = writer.counts
    scoring = WindowScoring(claim.shard, spec.scorings, scorers, checkpoint)
    write_seconds = 0.0  # of the last window

    def fetch_and_write(prepared: PreparedWindow, launched: Launched) -> None:
        nonlocal write_seconds
        scores = scoring.fetch(prepared, launched)
        begun = time.monotonic()
        if all(one.has_all_rows for one in scores):  # otherwise the work stops here
            writer.write(prepared.window, scores, prepared.digests)
        write_seconds = time.monotonic() - begun

    def read() -> Iterator[Window]:
        yield from read_windows(file, claim.shard, spec)
        if progress.pace.window_seconds < _SOON_SECONDS and scoring.is_of_device:
            progress.on_read()

    with (
        prefetched(read(), "reader") as windows,
        prefetched(scoring.prepared(windows), "tokenizer") as prepared_windows,
        in_background(fetch_and_write, "writer") as write,
    ):
        for prepared in prepared_windows:
            vitals.waited(Phase.TOKENIZE, prepared.encode_seconds, rest=Phase.INPUT)
            vitals.enter(Phase.DEVICE)
            begun = time.monotonic()
            progress.on_launch()
            launched = scoring.launch(prepared, progress)
            vitals.enter(Phase.DEVICE)
            write(prepared, launched)  # waits for the window before, and so for the device
            vitals.waited(Phase.WRITE, write_seconds, rest=Phase.DEVICE)
            progress.check()
            progress.on_window()
            progress.pace.window_seconds = time.monotonic() - begun
            vitals.enter(Phase.INPUT)
        progress.on_launched()
        vitals.enter(Phase.DEVICE)
    vitals.waited(Phase.WRITE, write_seconds, rest=Phase.DEVICE)


@contextmanager
def _usage_errors_of(shard: Shard) -> Iterator[None]:
    """Raise usage errors as errors of this shard: the spec fits the first shard, against which it was checked."""
    try:
        yield
    except UsageError as error:
        raise ShardError(f"Shard {shard.name}: {error}") from error


def _receipt(
    claim: Claim,
    data: OutputFile,
    scores: OutputFile,
    counts: RowCounts,
    scorings: tuple[ScoringReceipt, ...],
    made: Provenance,
    stored: Receipt | None,
) -> Receipt:
    return Receipt(
        run_id=claim.run_id,
        shard=claim.shard.name,
        source_uri=disclosed_source(claim.shard),
        source_identity=claim.shard.identity,
        source_changed=claim.shard.changed,
        first_row=claim.shard.first_row,
        data=data,
        scores=scores,
        rows_in=counts.rows_in,
        rows_kept=counts.rows_kept,
        rows_dropped=counts.rows_dropped,
        rows_errored=counts.rows_errored,
        rows_bad=counts.rows_bad,
        errors=counts.errors,
        left_out=counts.left_out,
        scorings=scorings,
        provenance=made,
        scores_provenance=stored.scored_by if stored else None,
    )


def _stage(file: WrittenFile, path: str, rows: int, output: Output, claim: Claim, progress: Progress) -> OutputFile:
    is_there = claim.spec.is_in_place and output.has(path, file.sha256)
    staged_path = path if is_there else output.stage(file.path, path, attempt=claim.token)
    progress.on_progress()
    return OutputFile(path=path, staged_path=staged_path, size_bytes=file.size_bytes, sha256=file.sha256, rows=rows)


def _provenance(
    claim: Claim, scorers: Sequence[Scorer[Any]], vitals: Vitals, *, worker: str, started_at: float
) -> Provenance:
    """The provenance of a shard that ends now. `started_at` is in Unix seconds."""
    return Provenance(
        worker=disclosed_worker(claim.spec, worker),
        attempt=claim.attempt,
        device=scorers[0].info.device,
        versions={package: found for package in _VERSIONS_OF if (found := _version(package))},
        started_at=started_at,
        finished_at=time.time(),
        seconds=vitals.seconds(),
        tokens=vitals.tokens,
    )


def scoring_receipts(
    spec: RunSpec, scorers: Sequence[Scorer[Any]], counts: RowCounts, stored: Receipt | None = None
) -> tuple[ScoringReceipt, ...]:
    """Make a receipt for each scoring. `stored` is that of the attempt whose scores were read, if they were."""
    how: Sequence[ScorerInfo | ScoringReceipt] = stored.scorings if stored else [scorer.info for scorer in scorers]
    return tuple(
        ScoringReceipt(
            score_column=scoring.score_column,
            dtype=made.dtype,
            backend=made.backend,
            max_batch_tokens=made.max_batch_tokens,
            parity=_parity(made.parity, scoring, spec),
            refused_dtypes=made.refused_dtypes,
            histogram=counts.histograms[scoring.score_column],
            label_histograms=tuple(counts.histograms[column] for column in scoring.label_histogram_columns),
        )
        for scoring, made in zip(spec.scorings, how, strict=True)
    )


@cache
def _version(package: str) -> str | None:
    """Return None if the package is missing: a worker that loads no model has no torch."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _parity(trial: ParityTrial | Parity | None, scoring: Scoring, spec: RunSpec) -> Parity | None:
    if trial is None:
        return None
    if isinstance(trial, Parity):  # of an earlier run with another filter: its logits are not stored
        return replace(trial, flipped_share=None)
    return Parity(
        rows=trial.rows,
        max_error=trial.max_error,
        p999_error=trial.p999_error,
        flipped_share=_flipped_share(trial, scoring, spec),
    )


def _flipped_share(trial: ParityTrial, scoring: Scoring, spec: RunSpec) -> float | None:
    """The share of sample rows that the run's filter decides differently on the two sets of logits."""
    if spec.where is None:
        return 0.0
    if scoring.zero_shot:  # the trial was of the model's own outputs
        return None
    try:
        keep = filter_of_thread(spec.where, pa.schema(scoring_fields(scoring)))
    except UsageError:  # the filter uses columns that the sample does not have
        return None
    by_reference, by_fast = (
        keep.keep(score_columns(Scores(values=logits), {}, scoring)) for logits in (trial.reference, trial.fast)
    )
    return len(np.setxor1d(by_reference, by_fast)) / trial.rows
