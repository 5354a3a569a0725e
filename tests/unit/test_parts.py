"""A long file is split between row groups into parts that follow each other."""

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardsift.fleet.inputs.input_file import BadRows
from shardsift.fleet.inputs.open_input import open_input
from shardsift.producer.planning.inputs import part_starts


@pytest.mark.parametrize(
    ("row_groups", "rows_per_task", "starts"),
    [
        ([], 5, [0]),
        ([3, 3, 3], 8, [0, 6]),
        ([3, 3, 3], 1, [0, 3, 6]),
        ([2, 9, 2, 2], 4, [0, 2, 11]),
        ([0, 3, 0, 3, 0], 3, [0, 3]),
    ],
)
def test_a_part_has_as_many_row_groups_as_fit(row_groups: list[int], rows_per_task: int, starts: list[int]) -> None:
    assert part_starts(row_groups, rows_per_task) == starts


@given(row_groups=st.lists(st.integers(0, 20)), rows_per_task=st.integers(1, 40))
def test_no_part_is_empty_or_longer_than_asked_unless_a_row_group_is(row_groups: list[int], rows_per_task: int) -> None:
    starts = part_starts(row_groups, rows_per_task)

    lengths = [end - start for start, end in pairwise([*starts, sum(row_groups)])]
    assert all(length <= max([rows_per_task, *row_groups]) for length in lengths)
    assert all(lengths) or not sum(row_groups)
    assert {*starts} <= {sum(row_groups[:place]) for place in range(len(row_groups) + 1)}


@pytest.mark.parametrize("first_row", [0, 1, 3, 5, 6, 9, 10, 12])  # of a file that has changed, also between row groups
def test_a_file_is_read_from_any_row_on(tmp_path: Path, first_row: int) -> None:
    texts = pa.array([*(b"%d" % row for row in range(9)), b"\xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=3)
    bad: BadRows = {}

    with open_input(str(tmp_path / "a.parquet"), first_row=first_row) as file:
        found = pa.Table.from_batches(file.batches(bad=bad, most_rows=2), file.schema)["text"].to_pylist()

        assert file.count_rows() == len(found)

    assert found == [*map(str, range(9)), None][first_row:]
    assert [(row, one.position) for row, one in bad.items()] == [(9, "row 9")] * (first_row < 10)
