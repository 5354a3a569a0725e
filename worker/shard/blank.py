"""Texts that a model should not be asked about: those without a visible character."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from worker.scoring import EncodedRows

if TYPE_CHECKING:
    from worker.scoring import Scorer

REASON = "blank text"


def encode_visible(scorer: "Scorer", texts: pa.LargeStringArray) -> EncodedRows:
    """As the scorer encodes them, but a text that is empty or only white space, as Unicode has it, is errored."""
    blank = pc.fill_null(pc.or_(pc.equal(pc.binary_length(texts), 0), pc.utf8_is_space(texts)), False)
    rows = np.flatnonzero(blank.to_numpy(zero_copy_only=False)).tolist()
    if not rows:
        return scorer.encode(texts)
    encoded = scorer.encode(pc.if_else(blank, pa.scalar(None, texts.type), texts))
    errors = encoded.errors | dict.fromkeys(rows, REASON)
    return replace(encoded, errors=dict(sorted(errors.items())))
