"""The two files of a shard: the kept rows with their scores, and a line for every row. The bytes are always the same."""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardsift.fleet.errors import UsageError
from shardsift.fleet.run.model import Model
from shardsift.fleet.storage.parquet import ParquetFileWriter
from shardsift.worker.scoring import Scores
from shardsift.worker.shard.reader import Window
from shardsift.worker.shard.writer import with_scores
from support.records import a_shard, a_spec
from support.written_shards import write_shard

THREE_LABELS = Model(name="m", revision="r", labels=("low", "middle", "high"))


def column_of(*scores: float) -> npt.NDArray[np.float32]:
    return np.array(scores, dtype=np.float32).reshape(-1, 1)


def some_texts(rows: int) -> pa.Table:
    return pa.table({"text": [f"text {row}" for row in range(rows)], "place": range(rows)})


def rows_of_many_types(rows: int) -> pa.Table:
    noon = datetime(2024, 2, 20, 12, tzinfo=UTC)
    many_types: dict[pa.Field, list[Any]] = {
        pa.field("text", pa.string(), nullable=False): [f"text {i}" for i in range(rows)],
        pa.field("large", pa.large_string()): [None if i % 3 == 0 else f"large {i}" for i in range(rows)],
        pa.field("bytes", pa.binary(), metadata={b"unit": b"octets"}): [bytes([i % 256, 0, 255]) for i in range(rows)],
        pa.field("fixed", pa.binary(4)): [i.to_bytes(4, "big") for i in range(rows)],
        pa.field("kind", pa.dictionary(pa.int32(), pa.string())): [("a", "b", None)[i % 3] for i in range(rows)],
        pa.field("when", pa.timestamp("us", tz="Europe/Berlin")): [noon + timedelta(hours=i) for i in range(rows)],
        pa.field("when_ns", pa.timestamp("ns")): [i * 1_000_000_007 for i in range(rows)],
        pa.field("price", pa.decimal128(20, 4)): [Decimal(i).scaleb(-4) for i in range(rows)],
        pa.field("half", pa.float16()): [np.float16(i) for i in range(rows)],
        pa.field("real", pa.float64()): [math.nan if i % 5 == 0 else i / 7 for i in range(rows)],
        pa.field("words", pa.list_(pa.field("element", pa.string(), nullable=False))): [
            None if i % 4 == 0 else ["w"] * (i % 3) for i in range(rows)
        ],
        pa.field("meta", pa.struct({"url": pa.string(), "deep": pa.struct({"n": pa.list_(pa.int64())})})): [
            {"url": None, "deep": {"n": [i, None]}} for i in range(rows)
        ],
        pa.field("pairs", pa.map_(pa.string(), pa.int32())): [[("k", i)] for i in range(rows)],
        pa.field("nothing", pa.null()): [None] * rows,
    }
    arrays = [pa.array(values, field.type) for field, values in many_types.items()]
    return pa.table(arrays, schema=pa.schema(list(many_types), metadata={b"origin": b"a crawl"}))


def test_kept_rows_keep_every_columns_values_type_nullability_and_metadata_of_its_own(tmp_path: Path) -> None:
    rows = rows_of_many_types(50)
    every_other = list(range(0, 50, 2))

    written = write_shard(tmp_path, rows, np.zeros((50, 1), np.float32), kept=every_other, window_rows=7)

    came_in = pq.read_table(tmp_path / "input.parquet")
    kept = written.kept.select(rows.schema.names)
    assert kept.schema.field("bytes").metadata[b"unit"] == b"octets"
    assert kept.schema.equals(came_in.schema.remove_metadata(), check_metadata=True)
    assert kept.drop_columns("real").equals(came_in.take(every_other).drop_columns("real"))
    # NaN equals NaN here.
    np.testing.assert_array_equal(kept["real"].to_numpy(), came_in["real"].to_numpy()[every_other])


def fineweb_edu_int_score(score: float) -> int:
    return int(round(max(0, min(score, 5))))  # word for word as on the classifier's model card


@given(st.lists(st.floats(-10, 10, width=32) | st.sampled_from([n / 2 for n in range(-4, 14)]), min_size=1))
def test_the_int_score_is_fineweb_edus(scores: list[float]) -> None:
    rows = some_texts(len(scores))

    scored = with_scores(Window(first_row=0, rows=rows), [Scores(values=column_of(*scores))], {}, a_shard(), a_spec())

    assert scored["int_score"].to_pylist() == [fineweb_edu_int_score(score) for score in scores]


def test_a_model_of_three_labels_adds_the_highest_logit_its_label_and_a_score_of_each(tmp_path: Path) -> None:
    logits = np.array([[0.5, -1.0, 2.0], [3.0, 1.0, -2.0], [np.nan, np.nan, np.nan]], dtype=np.float32)
    spec = a_spec(model=THREE_LABELS, int_score=False, score_column="topic")

    written = write_shard(tmp_path, some_texts(3), logits, errors={2: "null text"}, spec=spec)

    added = [
        {"topic": 2.0, "topic_label": "high", "topic_low": 0.5, "topic_middle": -1.0, "topic_high": 2.0},
        {"topic": 3.0, "topic_label": "low", "topic_low": 3.0, "topic_middle": 1.0, "topic_high": -2.0},
        dict.fromkeys(spec.output_columns),
    ]
    assert written.kept.select(spec.output_columns).to_pylist() == added[:2]
    assert written.lines == [
        {"shard": "s", "row": 0, **added[0], "topic_logits": [0.5, -1.0, 2.0], "error": None},
        {"shard": "s", "row": 1, **added[1], "topic_logits": [3.0, 1.0, -2.0], "error": None},
        {"shard": "s", "row": 2, **added[2], "topic_logits": None, "error": "null text"},
    ]


def test_the_columns_that_say_where_a_row_is_from_are_named_by_the_spec(tmp_path: Path) -> None:
    spec = a_spec(row_columns=("shard_2", "row_2"))

    written = write_shard(tmp_path, some_texts(5), np.zeros((5, 1), np.float32), spec=spec)

    assert written.kept.schema.names == ["text", "place", "shard_2", "row_2", *spec.output_columns]
    assert written.lines[4]["shard"] == "s"


@pytest.mark.parametrize(
    ("column", "says"), [("int_score", 'has a column "int_score"'), ("Score", 'has a column "Score"')]
)
def test_the_name_of_an_added_column_that_is_taken_is_refused(tmp_path: Path, column: str, says: str) -> None:
    rows = some_texts(1).append_column(column, pa.array([1]))

    with pytest.raises(UsageError, match=says):
        write_shard(tmp_path, rows, column_of(1))


def test_a_shard_that_keeps_nothing_gives_an_empty_file_with_all_columns(tmp_path: Path) -> None:
    written = write_shard(tmp_path, rows_of_many_types(20), np.zeros((20, 1), np.float32), kept=[], window_rows=6)

    expected = [*rows_of_many_types(1).schema.names, "shard", "row", *a_spec().output_columns]
    assert (len(written.kept), written.kept.schema.names) == (0, expected)
    assert len(written.lines) == 20


def test_the_same_shard_written_again_has_the_same_bytes(tmp_path: Path) -> None:
    rows, values = rows_of_many_types(500), np.linspace(0, 5, 500, dtype=np.float32).reshape(-1, 1)

    first, again = (
        write_shard(tmp_path / name, rows, values, errors={7: "null text"}, window_rows=90)
        for name in ("first", "again")
    )

    assert first.data.read_bytes() == again.data.read_bytes()
    assert first.scores.read_bytes() == again.scores.read_bytes()


def test_no_metadata_of_inputs_that_may_be_untrue_and_no_maker_but_the_library_is_in_the_footer(
    tmp_path: Path,
) -> None:
    rows = some_texts(5).replace_schema_metadata({b"origin": b"a crawl"})

    written = write_shard(tmp_path, rows, np.zeros((5, 1), np.float32))

    data, side = (pq.read_metadata(file) for file in (written.data, written.scores))
    assert set(data.metadata) == {b"ARROW:schema"}
    assert set(side.metadata) == {b"ARROW:schema", b"shardsift.texts"}
    assert side.metadata[b"shardsift.texts"] == b'{"0": ["texts from 0"]}'
    assert {data.created_by, side.created_by} == {f"parquet-cpp-arrow version {pa.__version__}"}


def test_small_windows_are_gathered_into_large_row_groups(tmp_path: Path) -> None:
    written = write_shard(tmp_path, some_texts(2000), np.zeros((2000, 1), np.float32), window_rows=10)

    assert pq.read_metadata(written.data).num_row_groups == 1
    assert pq.read_metadata(written.scores).num_row_groups == 1


def test_a_long_file_has_row_groups_of_at_most_100_000_rows_with_a_page_index(tmp_path: Path) -> None:
    rows = some_texts(250_000)
    writer = ParquetFileWriter(tmp_path / "long.parquet", rows.schema)
    for first in range(0, len(rows), 1000):
        writer.write(rows.slice(first, 1000))
    written = writer.close()

    footer = pq.ParquetFile(written.path).metadata
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    assert [group.num_rows for group in groups] == [100_000, 100_000, 50_000]
    assert all(group.column(0).has_offset_index and group.column(0).has_column_index for group in groups)
    assert pq.read_table(written.path).equals(rows)
