"""Which worker scored a shard, how, and how close its scores are to the reference."""

import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pyarrow as pa

from fleet.errors import UsageError
from fleet.ledger.records import Claim
from fleet.run.columns import scoring_fields
from fleet.run.disclosure import disclosed_worker
from fleet.run.filter import Filter
from fleet.run.receipt import Parity, Provenance, ScoringReceipt
from fleet.run.scoring import Scoring
from fleet.run.spec import RunSpec
from worker.scoring import Scorer, Scores
from worker.scoring.parity_trial import ParityTrial
from worker.shard.vitals import Vitals
from worker.shard.writer import RowCounts, score_columns

_VERSIONS_OF = ("shardsift", "torch", "transformers", "pyarrow")


def provenance(
    claim: Claim, scorers: Sequence[Scorer[Any]], vitals: Vitals, *, worker: str, started_at: float
) -> Provenance:
    """The provenance of a shard that is finished now. `started_at` is in Unix seconds."""
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


def scoring_receipts(spec: RunSpec, scorers: Sequence[Scorer[Any]], counts: RowCounts) -> tuple[ScoringReceipt, ...]:
    """One receipt for each scoring of the run."""
    return tuple(
        ScoringReceipt(
            score_column=scoring.score_column,
            dtype=scorer.info.dtype,
            backend=scorer.info.backend,
            max_batch_tokens=scorer.info.max_batch_tokens,
            parity=_parity(scorer.info.parity, scoring, spec),
            refused_dtypes=scorer.info.refused_dtypes,
            histogram=counts.histograms[scoring.score_column],
            label_histograms=tuple(counts.label_histograms[column] for column in scoring.label_histogram_columns),
        )
        for scoring, scorer in zip(spec.scorings, scorers, strict=True)
    )


def _version(package: str) -> str | None:
    """None if the package is not installed: a worker that loads no model has no torch."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _parity(trial: ParityTrial | None, scoring: Scoring, spec: RunSpec) -> Parity | None:
    if trial is None:
        return None
    return Parity(
        rows=trial.rows,
        max_error=trial.max_error,
        p999_error=trial.p999_error,
        flipped_share=_flipped_share(trial, scoring, spec),
    )


def _flipped_share(trial: ParityTrial, scoring: Scoring, spec: RunSpec) -> float | None:
    """The share of sample rows for which the run's filter decides differently on the two sets of logits."""
    if spec.where is None:
        return 0.0
    if scoring.zero_shot:  # the trial was of the model's own outputs
        return None
    try:
        keep = Filter(spec.where, pa.schema(scoring_fields(scoring)))
    except UsageError:  # the filter uses columns that the sample does not have
        return None
    by_reference, by_fast = (
        keep.keep(score_columns(Scores(values=logits), {}, scoring)) for logits in (trial.reference, trial.fast)
    )
    return len(np.setxor1d(by_reference, by_fast)) / trial.rows
