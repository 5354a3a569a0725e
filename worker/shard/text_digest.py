"""A digest of a window's texts: scores of other texts are not theirs."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_HEX_DIGITS = 32


def text_digest(texts: pa.LargeStringArray) -> str:
    """The same for the same texts in the same order, however Arrow holds them. Null and the empty text differ."""
    lengths = pc.fill_null(pc.binary_length(texts), -1)
    digest = hashlib.sha256(lengths.to_numpy().astype("<i8"))
    digest.update(_content(texts.drop_null()))
    return digest.hexdigest()[:_HEX_DIGITS]


def _content(texts: pa.LargeStringArray) -> memoryview:
    """All texts, one after the other, without a copy."""
    _, offsets, content = texts.buffers()
    if not len(texts) or content is None:
        return memoryview(b"")
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return memoryview(content)[int(ends[0]) : int(ends[-1])]
