"""A digest of a window's texts, so that stored scores are used only for the texts that they belong to."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_HEX_DIGITS = 32


def text_digest(texts: pa.LargeStringArray | pa.StructArray) -> str:
    """Equal for equal texts or pairs in the same order, independent of their Arrow layout. Null and the empty text differ."""
    if isinstance(texts, pa.StructArray):
        both = "".join(map(text_digest, texts.flatten()))
        return hashlib.sha256(both.encode()).hexdigest()[:_HEX_DIGITS]
    lengths = pc.fill_null(pc.binary_length(texts), -1)
    digest = hashlib.sha256(lengths.to_numpy().astype("<i8"))
    digest.update(_content(texts.drop_null()))
    return digest.hexdigest()[:_HEX_DIGITS]


def _content(texts: pa.LargeStringArray) -> memoryview:
    """The bytes of all texts, concatenated, without a copy."""
    _, offsets, content = texts.buffers()
    if not len(texts) or content is None:
        return memoryview(b"")
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return memoryview(content)[int(ends[0]) : int(ends[-1])]
