"""The types of CSV's texts. A text is a number only if the number says all that the text says: `007` and `1.` are texts."""

import re

import pyarrow as pa
import pyarrow.compute as pc

_WHOLE = "^(0|-?[1-9][0-9]{0,18})$"
_NUMBER = r"^-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,17})?([eE][+-][0-9]{1,3})?$"  # 7e3 may well be somebody's id
_BOOL = "^(true|false|True|False|TRUE|FALSE)$"
_INT64 = range(-(1 << 63), 1 << 63)
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
    is_match = re.compile(_PATTERNS[data_type]).fullmatch
    return [
        place
        for place, text in enumerate(texts.to_pylist())
        if text is not None and not (is_match(text) and (data_type != pa.int64() or int(text) in _INT64))
    ]


def is_readable(data_type: pa.DataType) -> bool:
    """Whether the texts of a CSV file can be read as this type."""
    return data_type == pa.string() or data_type in _PATTERNS
