"""Who scored a shard, how, and how near to the model's own scores that is."""

import time
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fleet.columns import added_fields
from fleet.disclosure import disclosed_worker
from fleet.errors import UsageError
from fleet.filter import Filter
from fleet.ledger.records import Claim
from fleet.receipt import Parity, Provenance
from fleet.spec import RunSpec
from worker.scoring import Scores
from worker.shard.writer import score_columns

if TYPE_CHECKING:
    from worker.scoring import Scorer

Logits = npt.NDArray[np.float32]  # shape (rows, outputs)
_VERSIONS_OF = ("shardsift", "torch", "transformers", "pyarrow")


def provenance(claim: Claim, scorer: "Scorer", *, worker: str, started_at: float) -> Provenance:
    """`started_at` in Unix seconds; the shard is finished now."""
    return Provenance(
        worker=disclosed_worker(claim.spec, worker),
        attempt=claim.attempt,
        device=scorer.device_name,
        dtype=scorer.dtype,
        backend=scorer.backend.name,
        max_batch_tokens=scorer.max_batch_tokens,
        parity=_parity(scorer, claim.spec),
        versions={package: version(package) for package in _VERSIONS_OF},
        started_at=started_at,
        finished_at=time.time(),
    )


def _parity(scorer: "Scorer", spec: RunSpec) -> Parity | None:
    found = scorer.parity
    if found is None:
        return None
    return Parity(
        rows=found.rows,
        max_error=found.max_error,
        p999_error=found.p999_error,
        flipped_share=_flipped_share(found.reference, found.fast, spec),
    )


def _flipped_share(reference: Logits, fast: Logits, spec: RunSpec) -> float | None:
    """The share of the sample's rows that the run's filter keeps by the one logits and not by the other."""
    if spec.where is None:
        return 0.0
    try:
        keep = Filter(spec.where, pa.schema(added_fields(spec)))
    except UsageError:  # it reads columns of the input, which the sample has not
        return None
    by_reference, by_fast = (keep.keep(score_columns(Scores(values=logits), spec)) for logits in (reference, fast))
    return len(np.setxor1d(by_reference, by_fast)) / len(reference)
