"""Parquet: rows are read as they are written, in the run's order of columns."""

import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fleet.storage.inputs.opening import open_input
from support.line_files import read

VIEW = pa.string_view()


def parquet(folder: Path, **columns: pa.Array) -> Path:
    pq.write_table(pa.table(columns), folder / "a.parquet")
    return folder / "a.parquet"


def test_columns_come_in_the_runs_order_and_others_last(tmp_path: Path) -> None:
    file = parquet(tmp_path, more=pa.array([0]), text=pa.array(["a"]), x=pa.array([datetime.date(2024, 2, 29)]))

    with open_input(str(file), (("x", "date32[day]"), ("gone", "string"), ("text", "string"))) as opened:
        (batch,) = opened.batches()
        (chosen,) = opened.batches(["text", "x"])

    assert opened.schema.names == batch.schema.names == ["x", "text", "more"]
    assert batch.to_pylist() == [{"x": datetime.date(2024, 2, 29), "text": "a", "more": 0}]
    assert chosen.schema.names == ["text", "x"]


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        (VIEW, pa.string()),
        (pa.binary_view(), pa.binary()),
        (pa.list_(VIEW), pa.list_(pa.field("element", pa.string()))),
        (pa.large_list(VIEW), pa.large_list(pa.field("element", pa.string()))),
        (pa.list_(VIEW, 2), pa.list_(pa.field("element", pa.string()), 2)),
        (pa.struct([("a", pa.int64()), ("b", pa.list_(VIEW))]), None),
        (pa.map_(VIEW, VIEW), pa.map_(pa.string(), pa.string())),
    ],
)
def test_views_are_read_as_the_plain_types_that_are_the_same_in_parquet(
    tmp_path: Path, written: pa.DataType, plain: pa.DataType | None
) -> None:
    plain = plain or pa.struct([("a", pa.int64()), ("b", pa.list_(pa.field("element", pa.string())))])
    text = "a text that is longer than twelve bytes"
    value = {VIEW: text, pa.binary_view(): text.encode()}.get(written, [text, text])
    if pa.types.is_struct(written):
        value = {"a": 1, "b": [text]}
    if pa.types.is_map(written):
        value = [(text, text)]
    file = parquet(tmp_path, x=pa.array([value, None], written))

    rows = read(file)

    assert rows.schema.field("x").type == plain
    assert rows.take([1, 0])["x"].to_pylist() == [None, value]
