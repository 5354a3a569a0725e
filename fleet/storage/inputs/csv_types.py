"""The types of CSV's texts. A text is a number only if the number says all that the text says: `007` and `1.` are texts."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_WHOLE = "^(0|-?[1-9][0-9]{0,18})$"
_NUMBER = r"^-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,17})?([eE][+-][0-9]{1,3})?$"  # 7e3 may well be somebody's id
_BOOL = "^(true|false|True|False|TRUE|FALSE)$"
_MOST_DIGITS = 19  # with a sign; every shorter whole number fits 64 bits
_PATTERNS = {pa.bool_(): _BOOL, pa.int64(): _WHOLE, pa.float64(): _NUMBER}


def type_of(texts: pa.ChunkedArray) -> pa.DataType:
    """The narrowest type that all values have. A column without values is text."""
    if texts.null_count == len(texts):
        return pa.string()
    return next((kind for kind in _PATTERNS if converted(texts, kind) is not None), pa.string())


def converted(texts: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray | None:
    """The values as this type; None if one of them has not got it."""
    if data_type == pa.string():
        return texts
    if not pc.all(pc.match_substring_regex(texts, _PATTERNS[data_type]), min_count=0).as_py():
        return None
    try:
        return texts.cast(data_type)
    except pa.ArrowInvalid:  # a whole number that does not fit 64 bits
        return None


def misfits(texts: pa.ChunkedArray, data_type: pa.DataType) -> list[int]:
    """The places of the values that have not got this type."""
    fits = pc.and_(
        pc.match_substring_regex(texts, _PATTERNS[data_type]), pc.less(pc.binary_length(texts), _MOST_DIGITS)
    )
    suspects = np.flatnonzero(~pc.fill_null(fits, True).to_numpy()).tolist()
    return [place for place in suspects if converted(texts.slice(place, 1), data_type) is None]


def is_readable(data_type: pa.DataType) -> bool:
    """Whether the texts of a CSV file can be read as this type."""
    return data_type == pa.string() or data_type in _PATTERNS
