"""`verify --input` compares values as Arrow has them: NaN equals NaN at every level, and no value is made one of Python's."""

import math
from typing import Any

import pyarrow as pa
import pytest

from shardsift.producer.verify.rows import same_values

FAR = pa.array([1 << 61, 1 << 60], pa.timestamp("ms"))  # Python's dates end in 9999
NAN = pa.array([math.nan, 1.0])
HALF = pa.array([math.nan, 1.0], pa.float32()).cast(pa.float16())
LISTS = pa.ListArray.from_arrays([0, 1, 2], NAN)

SAME: dict[str, pa.Array] = {
    "NaN": NAN,
    "object with a time beyond Python's": pa.StructArray.from_arrays([FAR, NAN], ["t", "x"]),
    "list": LISTS,
    "object with lists": pa.StructArray.from_arrays([LISTS, FAR], ["x", "t"]),
    "map": pa.MapArray.from_arrays([0, 1, 2], FAR.cast(pa.int64()), NAN),
    "null list": pa.array([None, [math.nan]]),
    "dictionary": pa.DictionaryArray.from_arrays([0, 1], NAN),
}


def changed(values: pa.Array) -> pa.Array:
    """The same with its rows exchanged."""
    return values.take(pa.array([1, 0]))


def copy_of(values: pa.Array) -> pa.ChunkedArray:
    """The same values elsewhere, in two pieces."""
    return pa.chunked_array([pa.concat_arrays([values.slice(0, 1)]), values.slice(1)], values.type)


@pytest.mark.parametrize("values", SAME.values(), ids=SAME)
def test_a_column_has_the_values_of_its_copy_and_no_others(values: pa.Array) -> None:
    column = pa.chunked_array([values])

    assert same_values(column, copy_of(values))
    assert not same_values(column, copy_of(changed(values)))


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (pa.array(["a", None]), pa.array(["a", None], pa.large_string()), True),
        (LISTS, LISTS.cast(pa.large_list(pa.float64())), True),
        (pa.array([[math.nan], []]), pa.array([[math.nan], None]), False),
        (pa.array([[1.0], [math.nan, 2.0]]), pa.array([[1.0, math.nan], [2.0]]), False),
        (pa.array([{"a": math.nan}]), pa.array([{"b": math.nan}]), False),
        (pa.array([math.nan]), pa.array([None], pa.float64()), False),
        (pa.array([{"a": 1}]), pa.array([[1]]), False),
        (pa.array([1.5]), pa.array(["x"]), False),
    ],
)
def test_columns_of_other_types_have_the_same_values_or_not(one: pa.Array, other: pa.Array, is_same: Any) -> None:
    assert same_values(pa.chunked_array([one]), pa.chunked_array([other])) is is_same
