"""A digest of a window's texts, so that stored scores are used only for the texts that they belong to.

A scores file has the digests of its windows in its metadata.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fleet.run.scoring import Scoring

_KEY = "shardsift.texts"
_HEX_DIGITS = 32


def scored_digest(rows: pa.Table, scoring: Scoring) -> str:
    """Equal for rows of which this scoring scores the same texts: it covers the columns that the texts are made of."""
    columns = [*scoring.text_columns, *filter(None, [scoring.text_pair_column])]
    digests = (text_digest(rows.column(name).cast(pa.large_string()).combine_chunks()) for name in columns)
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:_HEX_DIGITS]


def as_metadata(digests: Mapping[int, Sequence[str]]) -> dict[str, str]:
    """The metadata of a scores file. `digests` has one for each scoring, by the first row of a window."""
    return {_KEY: json.dumps(digests)}


def digests_in(scores: pq.ParquetFile) -> dict[tuple[int, int], list[str]]:
    """The digests of each window of a scores file, by its first row and the one after it. Empty if it says none."""
    found = json.loads(scores.metadata.metadata.get(_KEY.encode(), b"{}"))
    starts = [*map(int, found), scores.metadata.num_rows]
    return dict(zip(zip(starts, starts[1:], strict=False), found.values(), strict=True))


def text_digest(texts: pa.LargeStringArray) -> str:
    """Equal for equal texts in the same order, independent of their Arrow layout. Null and the empty text differ."""
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
