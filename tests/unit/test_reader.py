"""The windows of a shard have all rows once, in order, with limited rows and bytes, and depend only on file and spec."""

import random
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardsift.fleet.errors import ShardError
from shardsift.fleet.inputs.input_file import too_many_bad_rows
from shardsift.fleet.inputs.json_lines import JsonLines
from shardsift.fleet.inputs.open_input import open_input
from shardsift.fleet.run.output_columns import describe_columns
from shardsift.fleet.run.spec import RunSpec
from shardsift.worker.shard.reader import Window, read_windows
from support.line_files import write_file, write_json_lines
from support.records import a_shard, a_spec


def write_rows(path: Path, texts: list[str], *, row_group_rows: int) -> Path:
    pq.write_table(pa.table({"text": texts, "place": range(len(texts))}), path, row_group_size=max(1, row_group_rows))
    return path


def windows_of(
    path: Path, *, row_limit: int | None = None, spec: RunSpec | None = None, **changes: Any
) -> list[Window]:
    """The windows as a worker reads them, by default in a run over only this file."""
    with open_input(str(path), spec.columns if spec else None) as file:
        spec = spec or a_spec(columns=describe_columns(file.schema))
        changed = a_spec(**{**spec.__dict__, **changes})
        return list(read_windows(file, a_shard("000_00000", uri=str(path), row_limit=row_limit), changed))


def spans(windows: list[Window]) -> list[tuple[int, int]]:
    """(first row, rows) of each window."""
    return [(window.first_row, len(window.rows)) for window in windows]


def places(windows: list[Window]) -> list[int]:
    return [place for window in windows for place in window.rows["place"].to_pylist()]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.sampled_from([0, 1, 30, 400, 5000]), max_size=200),
    row_group_rows=st.integers(1, 250),
    window_rows=st.integers(1, 250),
    window_bytes=st.integers(1, 50_000),
    row_limit=st.none() | st.integers(0, 250),
)
def test_whatever_the_bounds_no_row_is_lost_or_doubled_and_no_window_has_too_many(
    tmp_path: Path,
    lengths: list[int],
    row_group_rows: int,
    window_rows: int,
    window_bytes: int,
    row_limit: int | None,
) -> None:
    file = write_rows(tmp_path / "s.parquet", ["x" * length for length in lengths], row_group_rows=row_group_rows)

    windows = windows_of(file, window_rows=window_rows, window_bytes=window_bytes, row_limit=row_limit)

    expected = len(lengths) if row_limit is None else min(row_limit, len(lengths))
    assert places(windows) == list(range(expected))
    assert all(1 <= len(window.rows) <= window_rows for window in windows)
    assert [window.first_row for window in windows] == [places([window])[0] for window in windows]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.sampled_from([0, 1, 30, 400, 5000]), min_size=1, max_size=60),
    block_bytes=st.integers(1, 20_000),
    window_rows=st.integers(1, 60),
    window_bytes=st.integers(1, 20_000),
)
def test_windows_are_the_same_for_the_same_rows_in_each_format_and_do_not_depend_on_blocks(
    tmp_path: Path, lengths: list[int], block_bytes: int, window_rows: int, window_bytes: int
) -> None:
    rows = [
        {"text": "x" * length, "place": place, "tags": ["y"] * (length % 7)} for place, length in enumerate(lengths)
    ]
    schema = pa.schema([("text", pa.string()), ("place", pa.int64()), ("tags", pa.list_(pa.string()))])
    parquet = tmp_path / "s.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema), parquet, row_group_size=1 + block_bytes % 9)
    jsonl = write_json_lines(tmp_path / "s.jsonl", rows)
    sizes = {"window_rows": window_rows, "window_bytes": window_bytes}
    spec = a_spec(columns=describe_columns(schema), **sizes)
    in_blocks = JsonLines(partial(open, jsonl, "rb"), "s.jsonl", spec.columns, block_bytes=block_bytes)

    windows = list(read_windows(in_blocks, a_shard("s"), spec))

    assert [window.rows.to_pylist() for window in windows] == [
        window.rows.to_pylist() for window in windows_of(parquet, **sizes)
    ]
    assert spans(windows) == spans(windows_of(jsonl, **sizes)) == spans(windows_of(parquet, **sizes))


@pytest.mark.parametrize("row_group_rows", [100, 10_000])
def test_long_texts_end_a_window_by_its_bytes(tmp_path: Path, row_group_rows: int) -> None:
    rng = random.Random(0)
    texts = [rng.randbytes(50_000).hex() for _ in range(300)]
    file = write_rows(tmp_path / "s.parquet", texts, row_group_rows=row_group_rows)

    windows = windows_of(file, window_bytes=4 << 20)

    step = 8 << 20
    assert len(windows) > 1
    assert places(windows) == list(range(300))
    assert max(window.rows.nbytes for window in windows) <= (4 << 20) + step


@pytest.mark.parametrize(
    ("columns", "difference"),
    [
        ((("text", "string"), ("place", "int64"), ("url", "string")), 'no "url"'),
        ((("text", "string"),), 'an extra "place"'),
        ((("text", "string"), ("place", "int32")), '"place" is int64, not int32'),
    ],
)
def test_a_shard_with_other_columns_is_refused_by_the_difference(
    tmp_path: Path, columns: tuple[tuple[str, str], ...], difference: str
) -> None:
    file = write_rows(tmp_path / "s.parquet", ["a"], row_group_rows=10)

    with pytest.raises(ShardError) as refusal:
        windows_of(file, spec=a_spec(columns=columns))

    assert f"Shard 000_00000 has other columns than the run's first shard: {difference}." in str(refusal.value)


def test_broken_pages_are_refused_while_they_are_read(tmp_path: Path) -> None:
    rng = random.Random(0)
    texts = [rng.randbytes(100).hex() for _ in range(5000)]
    file = write_rows(tmp_path / "s.parquet", texts, row_group_rows=1000)
    content = bytearray(file.read_bytes())
    third_group = pq.read_metadata(file).row_group(2).column(0)
    for offset in range(third_group.data_page_offset, third_group.data_page_offset + 4000):
        content[offset] ^= 0xFF
    file.write_bytes(content)

    with pytest.raises(ShardError, match=r"Reading shard 000_00000: the file cannot be read and may be damaged \(.+\)"):
        windows_of(file)


TEXT = (("text", "string"),)


def windows_of_lines(folder: Path, lines: list[str], share: float, **changes: Any) -> list[Window]:
    file = write_file(folder / "a.jsonl", "\n".join(lines).encode())
    spec = a_spec(columns=TEXT, max_bad_rows=share, window_rows=100)
    return windows_of(file, spec=spec, **changes)


def test_bad_rows_are_reported_by_their_window(tmp_path: Path) -> None:
    lines = ['{"text": "a"}'] * 250
    for row in (7, 99, 100, 249):
        lines[row] = "null"

    windows = windows_of_lines(tmp_path, lines, 4 / 250)

    assert spans(windows) == [(0, 100), (100, 100), (200, 50)]
    assert [list(window.bad) for window in windows] == [[7, 99], [0], [49]]
    assert windows[1].bad[0].position == "line 101"
    assert [window.rows["text"].null_count for window in windows] == [2, 1, 1]


def test_too_many_bad_rows_fail_the_shard_with_the_first_of_them_and_the_share_that_would_do(tmp_path: Path) -> None:
    lines = ['{"text": "a"}', "null", "", '{"text": 1}', "{", *["}"] * 8, *['{"text": "b"}'] * 88]

    with pytest.raises(
        ShardError,
        match="Shard 000_00000: 11 rows of 100 cannot be read, and --max-bad-rows 0.05 allows 10; --max-bad-rows 0.11 would "
        "do, in a run to another --output. line 2: not a JSON object.*; line 4: text is 1, not string; "
        r"line 5: not valid JSON: .*; and 8 more\.",
    ):
        windows_of_lines(tmp_path, lines, 0.05)
    assert len(windows_of_lines(tmp_path, lines, 0.11)) == 1


def test_bad_rows_of_a_small_shard_are_judged_with_those_of_the_run(tmp_path: Path) -> None:
    """One line of 75 is more than 1 %."""
    windows = windows_of_lines(tmp_path, ["null"] * 10 + ['{"text": "a"}'] * 65, 0.01)

    assert len(windows[0].bad) == 10
    with pytest.raises(ShardError, match="1 row of 75 cannot be read, and --max-bad-rows 0 allows 0"):
        windows_of_lines(tmp_path, ["null"] + ['{"text": "a"}'] * 74, 0)


def test_as_many_rows_may_be_bad_as_the_share_says_and_in_any_case_a_few() -> None:
    for number in range(101):
        share = float(f"0.{number:02}") if number < 100 else 1.0
        assert not too_many_bad_rows(number, 100, share, of_run=True)
        assert bool(too_many_bad_rows(number, 100, 0.01, of_run=False)) == (number > 10)
        assert bool(too_many_bad_rows(number, 100, 0.01, of_run=True)) == (number > 10)
    assert not too_many_bad_rows(0, 0, 0.0, of_run=True)
    assert "0.334 would do" in too_many_bad_rows(1, 3, 0.01, of_run=True)
