"""Texts that are not sent to the model: those without a visible character."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from worker.scoring import Scores

REASON = "blank text"


def blank_rows(texts: pa.LargeStringArray) -> list[int]:
    """The rows whose text is empty or only white space, as Unicode defines it; not those that are null."""
    blank = pc.or_(pc.equal(pc.binary_length(texts), 0), pc.utf8_is_space(texts))
    return np.flatnonzero(pc.fill_null(blank, False).to_numpy(zero_copy_only=False)).tolist()


def without(texts: pa.LargeStringArray, rows: list[int]) -> pa.LargeStringArray:
    """The texts, with null in these rows."""
    if not rows:
        return texts
    mask = np.zeros(len(texts), dtype=np.bool_)
    mask[rows] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, texts.type), texts)


def with_blank_errors(scores: Scores, rows: list[int]) -> Scores:
    """The scores, with these rows errored because their text is blank."""
    return replace(scores, errors=dict(sorted((scores.errors | dict.fromkeys(rows, REASON)).items())))
