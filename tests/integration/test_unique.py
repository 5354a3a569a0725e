"""`--unique` keeps the first row of each text, over all shards: found by a set of texts, and the same whatever happens."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardsift.producer.verify.verify import verify
from support.outputs import data_digests, manifest_lines, published_rows
from support.small_run import Runs

SHARDS, ROWS = 4, 60


def texts_of(shard: int) -> list[str | None]:
    """Texts of which each is there several times: within a shard, in several shards, with other spaces, and none at all."""
    common = [f"Text {(row * 7 + shard) % 23} is in several shards." for row in range(ROWS - 8)]
    return [*common, None, "", "  ", f"alone {shard}", f"alone {shard}", f"alone  {shard}", "Ünï", "Ünï "]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source") / "shards"
    folder.mkdir()
    for shard in range(SHARDS):
        rows = pa.table(
            {
                "text": texts_of(shard),
                "title": [f"Title {row % 3}" for row in range(ROWS)],
                "n": range(ROWS),
                "kind": pa.array([f"kind {shard} {row % 5}" for row in range(ROWS)]).dictionary_encode(),
                "amounts": pa.array([[("a", row)] for row in range(ROWS)], pa.map_(pa.string(), pa.int64())),
            }
        )
        pq.write_table(rows, folder / f"{shard:03}.parquet")
    return folder


def first_of_each(rows: list[dict[str, Any]], *columns: str) -> list[dict[str, Any]]:
    """The oracle: go through the kept rows of a run without `--unique`, in order, with a set of the texts so far."""
    seen: set[tuple[str, ...]] = set()
    first = []
    for row in rows:
        text = tuple(row[column] for column in columns)
        if text not in seen:
            seen.add(text)
            first.append(row)
    return first


def kept(output: Path) -> list[dict[str, Any]]:
    return list(published_rows(output).to_pylist())


@pytest.mark.parametrize("size", [None, "10kB"])
@pytest.mark.parametrize("where", [None, "score >= 0 and n % 3 > 0"])
def test_of_equal_texts_among_the_kept_rows_the_first_is_kept(
    runs: Runs, source: Path, where: str | None, size: str | None
) -> None:
    choice: dict[str, Any] = {"target_file_size": size, **({"where": where} if where else {"keep_all": True})}
    plain = runs.publish(source, "plain", **choice)

    unique = runs.publish(source, "unique", unique=True, **choice)

    expected = first_of_each(kept(plain), "text")
    assert kept(unique) == expected
    assert 0 < len(expected) < len(kept(plain)) / 2
    lines = manifest_lines(unique)
    assert sum(line["duplicates"] for line in lines) == len(kept(plain)) - len(expected)
    assert verify(str(unique), source=(str(source),)).faults == ()
