"""The size of a row depends only on its values."""

import pyarrow as pa
import pytest

from shardsift.worker.shard.reader import row_bytes

TAGS = pa.list_(pa.string())
COLUMNS = {
    "texts": (pa.array(["a", None, "ccc", ""]), [9, 8, 11, 8]),
    "numbers": (pa.array([1, None, 3, 4]), [8, 8, 8, 8]),
    "booleans": (pa.array([True, None, False, True]), [1, 1, 1, 1]),
    "lists": (pa.array([["ab", None], None, [], ["c"]], TAGS), [26, 8, 8, 17]),
    "large lists": (pa.array([[1, 2], None, [], [3]], pa.large_list(pa.int32())), [16, 8, 8, 12]),
    "lists of two": (pa.array([[1, 2], None, [3, 4], [5, 6]], pa.list_(pa.int32(), 2)), [8, 8, 8, 8]),
    "objects": (pa.array([{"n": 1, "t": "ab"}, None, {"n": None, "t": None}, {"n": 1, "t": "c"}]), [19, 17, 17, 18]),
    "maps": (pa.array([[("a", 1)], None, [], []], pa.map_(pa.string(), pa.int64())), [26, 8, 8, 8]),
    "lists of two texts": (
        pa.array([["a", "bb"], None, ["", ""], ["a", None]], pa.list_(pa.string(), 2)),
        [27, 8, 24, 25],
    ),
    "dictionaries": (pa.array(["aa", None, "b", "aa"]).dictionary_encode(), [10, 8, 9, 10]),
}


@pytest.mark.parametrize(("values", "sizes"), COLUMNS.values(), ids=COLUMNS.keys())
def test_a_rows_size_is_the_same_in_every_batch(values: pa.Array, sizes: list[int]) -> None:
    batch = pa.record_batch({"a": values, "b": values})

    for start in range(5):
        for end in range(start, 5):
            assert row_bytes(batch.slice(start, end - start)).tolist() == [2 * size for size in sizes[start:end]]
