"""However its values are encoded, a Parquet file is decoded in steps of limited size."""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from shardsift.fleet.errors import ShardError
from shardsift.fleet.inputs.input_file import STEP_ROWS
from shardsift.fleet.inputs.open_input import open_input
from shardsift.fleet.storage.errors import translated

LONG = "x" * 1_000_000
MOST_BYTES = 3 * (32 << 20)  # Arrow may hold a step three times while it decodes it
POOLS = []  # a buffer outlives its use

KINDS: dict[str, Callable[[list[str]], pa.Array]] = {
    "string": lambda texts: pa.array(texts),
    "view": lambda texts: pa.array(texts, pa.string_view()),
    "bytes": lambda texts: pa.array([text.encode() for text in texts]),
    "bytes of one size": lambda texts: pa.array(
        [text.ljust(100_000).encode()[:100_000] for text in texts], pa.binary(100_000)
    ),
    "dictionary": lambda texts: pa.array(texts).dictionary_encode(),
    "object": lambda texts: pa.array([{"a": text, "b": {"c": 1}} for text in texts]),
    "list": lambda texts: pa.array([[text] if len(text) > 9 else [] for text in texts]),
    "map": lambda texts: pa.array([[("k", text)] for text in texts], pa.map_(pa.string(), pa.string())),
    "list of numbers": lambda texts: pa.array([[len(text)] * (len(text) // 8) for text in texts]),
}
ENCODINGS = ["dictionary", "PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"]


@settings(
    max_examples=5,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # to shrink takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    case=st.tuples(
        st.sampled_from(sorted(KINDS)),
        st.sampled_from(ENCODINGS),
        st.integers(0, 2_000),  # short values, and then or between them
        st.integers(100, 200),  # long ones
        st.booleans(),
        st.sampled_from(["none", "snappy", "zstd"]),
        st.sampled_from(["1.0", "2.0"]),
    )
)
@example(case=("string", "dictionary", 1_500, 200, False, "snappy", "1.0"))
@example(case=("string", "DELTA_BYTE_ARRAY", 0, 200, False, "zstd", "2.0"))
@example(case=("object", "PLAIN", 1_500, 200, False, "zstd", "1.0"))
@example(case=("map", "dictionary", 0, 200, False, "zstd", "1.0"))
@example(case=("list of numbers", "dictionary", 0, 200, False, "none", "1.0"))
def test_a_step_has_few_megabytes_whatever_the_encoding(
    tmp_path: Path, case: tuple[str, str, int, int, bool, str, str]
) -> None:
    kind, encoding, short, long, is_mixed, compression, version = case
    texts = [f"{number}" for number in range(short)] + [LONG] * long
    if is_mixed:
        texts = texts[::7] + [text for place, text in enumerate(texts) if place % 7]
    rows = pa.table({"x": KINDS[kind](texts), "place": range(len(texts))})
    is_encoded = encoding != "dictionary" and not pa.types.is_nested(rows["x"].type) and kind != "bytes of one size"
    how = {"use_dictionary": False, "column_encoding": {"x": encoding}} if is_encoded else {}
    if encoding == "PLAIN":
        how = {"use_dictionary": False}
    file = tmp_path / "a.parquet"
    pq.write_table(rows, file, compression=compression, data_page_version=version, write_batch_size=8, **how)
    expected = rows["place"].to_pylist()
    del rows

    places, peak = read_with_peak(file)

    assert places == expected
    assert peak < MOST_BYTES


def read_with_peak(file: Path) -> tuple[list[int], int]:
    """The column `place`, and the most bytes that were needed at once to read all columns."""
    pool, usual = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        places = []
        with open_input(str(file)) as opened:
            for batch in opened.batches(bad={}, use_threads=False):
                places += batch["place"].to_pylist()
                del batch
        return places, pool.max_memory()
    finally:
        pa.set_memory_pool(usual)


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("inner", [False, True])
def test_a_step_has_few_megabytes_if_lists_of_one_size_are_null(tmp_path: Path, inner: bool, statistics: bool) -> None:
    """Arrow makes as many values of a null as of a list."""
    rows, size = 2_000, 10_000
    nulls = pa.nulls(rows, pa.list_(pa.list_(pa.float32(), size // 2), 2))
    column = pa.ListArray.from_arrays(range(rows + 1), nulls) if inner else nulls
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": column, "place": range(rows)}), file, write_statistics=statistics)
    del nulls, column

    places, peak = read_with_peak(file)

    assert places == [*range(rows)]
    assert peak < MOST_BYTES


@pytest.mark.parametrize("again", [1, 50])
def test_ordinary_texts_are_decoded_in_whole_steps(tmp_path: Path, again: int) -> None:
    """Some of them come again. Small steps would be slow."""
    texts = [f"{number % (5_000 - again)} {'a text of a page of the web ' * 100}" for number in range(5_000)]
    pq.write_table(pa.table({"text": texts, "url": texts, "tags": [["a", "b"]] * 5_000}), tmp_path / "a.parquet")

    with open_input(str(tmp_path / "a.parquet")) as file:
        steps = [len(batch) for batch in file.batches()]

    assert sum(steps) == 5_000
    assert len(steps) <= 5_000 / STEP_ROWS + 4


@pytest.mark.parametrize("rows", [1, 2, 17])
def test_one_row_alone_on_a_page_and_an_empty_row_group_are_read(tmp_path: Path, rows: int) -> None:
    table = pa.table({"text": [f"{place} {LONG}" for place in range(rows)], "tags": [["a"]] * rows})
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema, write_batch_size=1, use_dictionary=False) as writer:
        for part in (table, table.slice(0, 0), table):
            writer.write_table(part)

    with open_input(str(tmp_path / "a.parquet")) as file:
        found = pa.Table.from_batches(file.batches())

    assert found["text"].to_pylist() == 2 * table["text"].to_pylist()


def test_headers_that_are_not_readable_are_reported_as_damage(tmp_path: Path) -> None:
    rng = random.Random(0)
    pq.write_table(
        pa.table({"text": ["a" * 500, "b" * 900] * 2_000, "tags": [["a", "b"]] * 4_000}), tmp_path / "a.parquet"
    )
    content = (tmp_path / "a.parquet").read_bytes()
    for _ in range(40):
        damaged = bytearray(content)
        damaged[4:40] = rng.randbytes(36)
        (tmp_path / "b.parquet").write_bytes(damaged)

        with suppress(ShardError), translated("Reading"), open_input(str(tmp_path / "b.parquet")) as file:
            for _ in file.batches(bad={}):
                pass
