"""The text of each row that is scored: one column, several joined, or a template over columns."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fleet.errors import ShardError
from fleet.run.scoring import Scoring
from fleet.run.text import parts_of
from worker.scoring import Scores
from worker.scoring.tokenizing.tokenize import pairs, plain_texts

_BETWEEN = "\n\n"  # joined columns


def texts_of(rows: pa.Table, scoring: Scoring) -> pa.LargeStringArray | pa.StructArray:
    """The text of each row, or its pair of texts. A row without any of its columns has none: null.

    Columns that are null or blank in a row are left out of a join, and empty in a template.
    """
    return row_texts(rows, scoring.text_columns, template=scoring.text_template, pair_column=scoring.text_pair_column)


def row_texts(
    rows: pa.Table, columns: Sequence[str], *, template: str | None, pair_column: str | None
) -> pa.LargeStringArray | pa.StructArray:
    texts = _joined_columns(rows, columns) if template is None else _filled(rows, template)
    return texts if pair_column is None else pairs(texts, plain_texts(rows.column(pair_column)))


def _joined_columns(rows: pa.Table, names: Sequence[str]) -> pa.LargeStringArray:
    """The text of each row in one column, or in several with a blank line between them."""
    columns = [plain_texts(rows.column(name)) for name in names]
    return columns[0] if len(columns) == 1 else _joined(columns)


def is_blank(texts: pa.LargeStringArray | pa.StructArray) -> pa.BooleanArray:
    """Whether a text, or one of a pair, is empty or white space only, as Unicode defines it. Null for null."""
    if isinstance(texts, pa.StructArray):
        return pc.or_(*map(is_blank, texts.flatten()))
    return pc.or_(pc.equal(pc.binary_length(texts), 0), pc.utf8_is_space(texts))


def _joined(columns: list[pa.LargeStringArray]) -> pa.LargeStringArray:
    """A row whose columns are all blank has the text of the first that is not null."""
    return pc.coalesce(reduce(_both, map(_without_blank, columns)), *columns)


def _both(one: pa.LargeStringArray, other: pa.LargeStringArray) -> pa.LargeStringArray:
    """One text, the other, or both. (Arrow's null_handling="skip" returns no element at all for a row of nulls.)"""
    joined = pc.binary_join_element_wise(one, other, pa.scalar(_BETWEEN, pa.large_string()))
    return pc.coalesce(joined, one, other)


def _without_blank(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    return pc.if_else(is_blank(texts), pa.scalar(None, texts.type), texts)


def _filled(rows: pa.Table, template: str) -> pa.LargeStringArray:
    parts = parts_of(template)
    columns = {name: _as_text(rows.column(name)) for _, name in parts if name}
    empty = pa.scalar("", pa.large_string())
    pieces: list[pa.LargeStringArray | pa.Scalar] = []
    for literal, name in parts:
        pieces += [pa.scalar(literal, pa.large_string())] if literal else []
        pieces += [pc.fill_null(columns[name], empty)] if name else []
    text = pc.binary_join_element_wise(*pieces, empty)
    is_missing = reduce(pc.and_, map(pc.is_null, columns.values()))
    return pc.if_else(is_missing, pa.scalar(None, pa.large_string()), text)


def _as_text(column: pa.ChunkedArray) -> pa.LargeStringArray:
    """Any column whose values have a text of their own, such as numbers and times."""
    return plain_texts(column.cast(pa.large_string()))


# Rows without a score: those whose text no scorer gets, and those that a scorer gives no number. Each has a reason.


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
