"""Tell why rows have no score: no scorer gets their text, or a scorer gives them no number."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fleet.errors import ShardError
from fleet.run.scoring import Scoring
from fleet.run.text import is_blank
from worker.scoring import Scores


def unscorable_rows(texts: pa.LargeStringArray) -> dict[int, str]:
    """Row → reason, for rows without a text or with white space only."""
    reasons = dict.fromkeys(_rows(pc.is_null(texts)), "null text")
    reasons |= dict.fromkeys(_rows(pc.fill_null(is_blank(texts), False)), "blank text")
    return dict(sorted(reasons.items()))


def without(texts: pa.LargeStringArray, rows: dict[int, str]) -> pa.LargeStringArray:
    """The texts, with null in these rows."""
    mask = np.zeros(len(texts), dtype=np.bool_)
    mask[list(rows)] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, texts.type), texts) if rows else texts


def with_reasons(scores: Scores, unscorable: dict[int, str], scoring: Scoring, *, rows: int) -> Scores:
    """What a scorer returned for a window of `rows`, with a reason for every row that has no score.

    Raises ShardError if it is not one row of scores per text: a package's own scorer may return anything.
    """
    values = np.asarray(scores.values)
    if values.shape != (rows, scoring.outputs) or not np.issubdtype(values.dtype, np.number):
        raise ShardError(
            f"The scorer {scoring.model.scorer} returned an array of shape {values.shape} and type {values.dtype} for {rows:,} "
            f"rows. It must return numbers of shape ({rows}, {scoring.outputs}): one row per text, one column per label."
        )
    values = values.astype(np.float32)
    odd = np.logical_not(np.isfinite(values).all(axis=1))
    odd[scores.missing] = False
    errors = dict.fromkeys(np.flatnonzero(odd).tolist(), "score is not finite") | scores.errors | unscorable
    values[list(errors)] = np.nan
    return replace(scores, values=values, errors=dict(sorted(errors.items())))


def _rows(mask: pa.BooleanArray) -> list[int]:
    return list(np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist())
