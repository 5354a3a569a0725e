"""The life of one shard, from its claim to its receipt. A worker may die between any two lines, and each may run twice."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.inputs.identity import unchanged
from shardsift.fleet.inputs.input_file import InputFile
from shardsift.fleet.inputs.open_input import open_shard
from shardsift.fleet.ledger.records import Claim
from shardsift.fleet.run.filter import filter_of_thread
from shardsift.fleet.run.output_columns import kept_schema
from shardsift.fleet.run.receipt import OutputFile, Phase, Receipt
from shardsift.fleet.run.spec import Shard
from shardsift.fleet.storage.output import Output
from shardsift.fleet.storage.parquet import WrittenFile
from shardsift.fleet.storage.scratch import scratch_folder
from shardsift.worker.scoring import Scorer
from shardsift.worker.shard.checkpoint import Checkpoint
from shardsift.worker.shard.pipelining import in_background, prefetched
from shardsift.worker.shard.reader import Window, read_windows
from shardsift.worker.shard.receipts import make_receipt
from shardsift.worker.shard.vitals import Progress
from shardsift.worker.shard.window_scoring import Launched, PreparedWindow, WindowScoring
from shardsift.worker.shard.writer import ShardWriter

_SOON_SECONDS = 5.0  # if a window takes longer, other workers may be free for the next shard earlier


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
            with ShardWriter(scratch, file.schema, shard, spec, keep) as writer:
                _write_windows(file, writer, claim, scorers, progress, checkpoint)
                data_file, scores_file = writer.close()
        counts = writer.counts
        progress.check()
        progress.vitals.enter(Phase.STAGE)
        with ThreadPoolExecutor(2, "upload") as both:
            staged_data = both.submit(_stage, data_file, shard.data_path, counts.rows_kept, output, claim, progress)
            staged_scores = both.submit(_stage, scores_file, shard.scores_path, counts.rows_in, output, claim, progress)
            data, scores = staged_data.result(), staged_scores.result()
        receipt = make_receipt(
            claim, scorers, progress.vitals, counts, data, scores, worker=worker, started_at=started_at
        )
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
        if all(one.has_all_rows for one in scores):  # otherwise the work is stopping
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
            write(prepared, launched)  # waits for the previous window, and so for the device
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
    """Turn a UsageError into a ShardError. The spec was checked with the first shard only, and may not fit this one."""
    try:
        yield
    except UsageError as error:
        raise ShardError(f"Shard {shard.name}: {error}") from error


def _stage(file: WrittenFile, path: str, rows: int, output: Output, claim: Claim, progress: Progress) -> OutputFile:
    is_there = claim.spec.is_in_place and output.has(path, file.sha256)
    staged_path = path if is_there else output.stage(file.path, path, attempt=claim.token)
    progress.on_progress()
    return OutputFile(path=path, staged_path=staged_path, size_bytes=file.size_bytes, sha256=file.sha256, rows=rows)
