"""Rows that a preview draws: from all shards, not their first ones, and each at most once."""

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardsift.fleet.run.spec import RunSpec
from shardsift.producer.local.preview import draw_rows
from shardsift.producer.planning.inputs import list_input, split
from shardsift.producer.planning.sampled_work import SampledShard
from support.line_files import write_file
from support.records import a_spec

SPEC = a_spec(columns=(("text", "string"), ("n", "int64")))


def drawn(source: Path, rows: int, *, spec: RunSpec = SPEC, rows_per_task: int | None = None) -> list[SampledShard]:
    shards = split(list_input(str(source)), rows_per_task).shards
    return list(draw_rows(spec, shards, rows, lines_bytes=1 << 20))


def numbers(sample: list[SampledShard]) -> list[int]:
    """The column n of all drawn rows."""
    return [n for one in sample for n in one.table["n"].to_pylist()]


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Four Parquet files of 1,000 rows in groups of 100, of which one is three times as large as the others."""
    for file in range(4):
        rows = range(file * 1000, file * 1000 + 1000)
        text = [f"{n:0{3000 if file == 3 else 1000}}" for n in rows]
        table = pa.table({"text": text, "n": pa.array(rows, pa.int64())})
        pq.write_table(
            table, tmp_path / f"{file}.parquet", row_group_size=100, compression="none", use_dictionary=False
        )
    return tmp_path


def test_rows_of_parquet_come_from_everywhere_in_proportion_to_bytes_and_the_same_each_time(shards: Path) -> None:
    sample = drawn(shards, 120)
    found = numbers(sample)

    assert len(set(found)) == len(found) == 120
    assert [len(one.table) for one in sample] == pytest.approx([20, 20, 20, 60], abs=1)
    assert {n % 1000 // 100 for n in found} == set(range(10))  # of each row group
    assert [n for one in sample for n in (int(one.shard.name) * 1000 + row for row in one.numbers)] == found
    assert numbers(drawn(shards, 120)) == found


def test_rows_are_those_of_the_run_and_more_than_there_are_gives_all(shards: Path) -> None:
    (shards / "3.parquet").unlink()
    of_parts = drawn(shards, 100, rows_per_task=300)

    assert len(of_parts) == 12
    assert len(set(numbers(of_parts))) == 100
    assert sorted(numbers(drawn(shards, 20_000))) == list(range(3000))


@pytest.mark.parametrize(("ending", "places"), [(".jsonl", 64), (".jsonl.gz", 1), (".csv", 1)])
def test_rows_of_lines_come_from_places_all_over_the_file_where_that_needs_no_whole_read(
    ending: str, places: int, tmp_path: Path
) -> None:
    lines = [json.dumps({"text": f"{n:01000}", "n": n}) for n in range(5_000)]
    if ending == ".csv":
        lines = ["text,n", *(f"{n:01000},{n}" for n in range(5_000))]
    lines[4_000] = "broken"
    write_file(tmp_path / f"a{ending}", "\n".join(lines).encode())

    sample = drawn(tmp_path / f"a{ending}", 300)
    found = [n for n in numbers(sample) if n is not None]

    assert len(sample) == places
    assert len(set(found)) == len(found) >= 299
    tenths = Counter(n // 500 for n in found)
    assert (len(tenths) == 10) == (places > 1)
    if places > 1:
        assert sample[0].shard.name == "a"
        assert sample[1].shard.name.startswith("a from byte ")


def test_a_bad_row_is_noted_with_its_place_if_it_was_drawn(tmp_path: Path) -> None:
    write_file(tmp_path / "a.jsonl", b'{"text": "a", "n": 1}\n<html>\n{"text": "b", "n": 2}\n')

    text = pa.array([b"a"] * 250 + [b"\xff"] + [b"a"] * 49).cast(pa.string(), safe=False)
    pq.write_table(pa.table({"text": text, "n": list(range(300))}), tmp_path / "b.parquet", row_group_size=100)

    (lines,) = drawn(tmp_path / "a.jsonl", 90)
    (few,) = drawn(tmp_path / "a.jsonl", 1)
    (parquet,) = drawn(tmp_path / "b.parquet", 900)

    assert [(row, bad.position, bad.reason) for row, bad in lines.noted.items()] == [(1, "line 2", "not valid JSON")]
    assert [(row, bad.position, bad.reason) for row, bad in parquet.noted.items()] == [(250, "row 250", "not UTF-8")]
    assert lines.numbers == [0, 1, 2]
    assert few.noted.keys() == {*few.numbers} & {1}


def test_a_file_without_rows_gives_none(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([], pa.string()), "n": pa.array([], pa.int64())}), tmp_path / "a.parquet")

    assert [len(one.table) for one in drawn(tmp_path / "a.parquet", 5)] == [0]
