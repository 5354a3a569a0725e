"""Make the receipt of a shard: what was written, how it was scored, by which worker and when."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pyarrow as pa

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger.records import Claim
from shardsift.fleet.run.filter import filter_of_thread
from shardsift.fleet.run.output_columns import scoring_fields
from shardsift.fleet.run.receipt import OutputFile, Parity, Provenance, Receipt, ScoringReceipt
from shardsift.fleet.run.scoring import Scoring
from shardsift.fleet.run.spec import RunSpec, disclosed_source, disclosed_worker
from shardsift.worker.scoring import Scorer, ScorerInfo, Scores
from shardsift.worker.scoring.parity_trial import ParityTrial
from shardsift.worker.shard.stored_scores import StoredScores
from shardsift.worker.shard.vitals import Vitals
from shardsift.worker.shard.writer import RowCounts, score_columns

_VERSIONS_OF = ("shardsift", "torch", "transformers", "pyarrow")


def make_receipt(
    claim: Claim,
    scorers: Sequence[Scorer[Any]],
    vitals: Vitals,
    counts: RowCounts,
    data: OutputFile,
    scores: OutputFile,
    *,
    worker: str,
    started_at: float,
) -> Receipt:
    """Make the receipt of a shard that is finished now. `started_at` is in Unix time."""
    shard, first = claim.shard, scorers[0]
    stored = first.receipt_of(shard.name, shard.identity) if isinstance(first, StoredScores) else None
    return Receipt(
        run_id=claim.run_id,
        shard=shard.name,
        source_uri=disclosed_source(shard, claim.spec.subsets),
        source_identity=shard.identity,
        source_changed=shard.changed,
        first_row=shard.first_row,
        data=data,
        scores=scores,
        rows_in=counts.rows_in,
        rows_kept=counts.rows_kept,
        rows_dropped=counts.rows_dropped,
        rows_errored=counts.rows_errored,
        rows_bad=counts.rows_bad,
        errors=counts.errors,
        left_out=counts.left_out,
        rows_listed=tuple(counts.rows_listed),
        scorings=scoring_receipts(claim.spec, scorers, counts, stored),
        provenance=Provenance(
            worker=disclosed_worker(claim.spec, worker),
            attempt=claim.attempt,
            device=first.info.device,
            versions={package: found for package in _VERSIONS_OF if (found := _version(package))},
            started_at=_to_milliseconds(started_at),
            finished_at=_to_milliseconds(time.time()),
            seconds=vitals.seconds(),
            tokens=vitals.tokens,
        ),
        scores_provenance=stored.scored_by if stored else None,
    )


def _to_milliseconds(seconds: float) -> float:
    """Round a time as the manifest does, so that a card made from it has the same rows per second."""
    return round(seconds * 1000) / 1000


def scoring_receipts(
    spec: RunSpec, scorers: Sequence[Scorer[Any]], counts: RowCounts, stored: Receipt | None = None
) -> tuple[ScoringReceipt, ...]:
    """Make the receipt of each scoring of a shard.

    `stored` is the receipt of the earlier run whose stored scores were read. None if this run scored the shard.
    """
    how: Sequence[ScorerInfo | ScoringReceipt] = stored.scorings if stored else [scorer.info for scorer in scorers]
    return tuple(
        ScoringReceipt(
            score_column=scoring.score_column,
            dtype=made.dtype,
            backend=made.backend,
            max_batch_tokens=made.max_batch_tokens,
            parity=_parity(made.parity, scoring, spec),
            refused_dtypes=made.refused_dtypes,
            faulty_ways=made.faulty_ways,
            rows_in_float32=(
                made.rows_in_float32 if isinstance(made, ScoringReceipt) else counts.in_float32[scoring.score_column]
            ),
            histogram=counts.histograms[scoring.score_column],
            label_histograms=tuple(counts.histograms[column] for column in scoring.label_histogram_columns),
        )
        for scoring, made in zip(spec.scorings, how, strict=True)
    )


@cache
def _version(package: str) -> str | None:
    """Return a package's version. None if it is missing: a worker that loads no model may lack torch."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _parity(trial: ParityTrial | Parity | None, scoring: Scoring, spec: RunSpec) -> Parity | None:
    if trial is None:
        return None
    if isinstance(trial, Parity):  # from an earlier run with another filter, whose sample logits were not stored
        return replace(trial, flipped_share=None)
    return Parity(
        rows=trial.rows,
        max_error=trial.max_error,
        p999_error=trial.p999_error,
        flipped_share=_flipped_share(trial, scoring, spec),
    )


def _flipped_share(trial: ParityTrial, scoring: Scoring, spec: RunSpec) -> float | None:
    """Return the share of the parity gate's rows that pass the filter with one model but not with the other.

    The models are the plain and the optimised one. None if the filter cannot be applied to these rows.
    """
    if spec.where is None:
        return 0.0
    if scoring.zero_shot:  # the trial compared the model's own outputs, not the labels'
        return None
    try:
        keep = filter_of_thread(spec.where, pa.schema(scoring_fields(scoring)))
    except UsageError:  # the filter uses columns that the sample does not have
        return None
    by_reference, by_fast = (
        keep.keep(score_columns(Scores(values=logits), {}, scoring)) for logits in (trial.reference, trial.fast)
    )
    return len(np.setxor1d(by_reference, by_fast)) / trial.rows
