"""The texts of sampled rows, put together as in `worker/shard/texts.py`."""

import pyarrow as pa

from fleet.scoring import Scoring
from fleet.text_template import parts_of

_BETWEEN = "\n\n"  # joined columns
Text = tuple[str, ...]  # one text, or the two of a pair


def scored_texts(rows: pa.Table, scoring: Scoring) -> list[Text]:
    """The texts, or pairs of texts, that go through the model: rows without one are left out."""
    columns = {name: _as_texts(rows.column(name)) for name in rows.column_names}
    wanted = [columns[name] for name in scoring.text_columns]
    pair = scoring.text_pair_column
    texts = []
    for row in range(len(rows)):
        values = [column[row] for column in wanted]
        parts = (_text(values, scoring), *([columns[pair][row]] if pair else []))
        if all(part is not None and part.strip() for part in parts):
            texts.append(tuple(part for part in parts if part is not None))
    return texts


def _text(values: list[str | None], scoring: Scoring) -> str | None:
    if all(value is None for value in values):
        return None
    if scoring.text_template is None:
        return _BETWEEN.join(value for value in values if value and value.strip())
    of_columns = dict(zip(scoring.text_columns, values, strict=True))
    return "".join(
        literal + ((of_columns[name] or "") if name else "") for literal, name in parts_of(scoring.text_template)
    )


def _as_texts(column: pa.ChunkedArray) -> list[str | None]:
    """Invalid UTF-8, which Parquet allows, becomes U+FFFD."""
    values = column.cast(pa.large_string()).cast(pa.large_binary()).to_pylist()
    return [None if value is None else value.decode(errors="replace") for value in values]
