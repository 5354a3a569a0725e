"""Write demo texts as Parquet: shards with the columns and types of FineWeb, and a labelled file for training.

Knows nothing of runs, queues or models. On one machine, a seed always gives the same bytes.
"""

import math
import random
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from producer.demo.texts import Document, Kind, Part, documents

CRAWL = "CC-MAIN-2024-10"
CRAWLED_FROM = datetime(2024, 2, 20, 21, tzinfo=UTC)
CRAWLED_FOR = timedelta(days=14)

FINEWEB = pa.schema(
    {
        "text": pa.string(),
        "id": pa.string(),
        "dump": pa.string(),
        "url": pa.string(),
        "date": pa.string(),
        "file_path": pa.string(),
        "language": pa.string(),
        "language_score": pa.float64(),
        "token_count": pa.int64(),
    }
)
LABELLED = pa.schema({"text": pa.string(), "label": pa.float64(), "kind": pa.string()})


def write_shards(folder: Path, *, shards: int, rows: int, seed: int, row_group_rows: int = 1000) -> list[Path]:
    """Write `000_00000.parquet` and so on, each with `rows` rows. A larger number of shards does not change the first."""
    paths = [folder / f"000_{number:05}.parquet" for number in range(shards)]
    stream = _fineweb_rows(seed)
    for path in paths:
        _write(path, FINEWEB, _row_groups(islice(stream, rows), FINEWEB, row_group_rows))
    return paths


def write_shard_of_size(path: Path, *, megabytes: float, seed: int, row_group_rows: int = 1000) -> None:
    """Write row groups until the file has `megabytes` (10**6 bytes). Only one row group is in memory at a time."""
    endless = _row_groups(_fineweb_rows(seed), FINEWEB, row_group_rows)
    _write(path, FINEWEB, endless, enough_bytes=megabytes * 1e6)


def write_labelled(path: Path, *, rows: int, seed: int) -> None:
    """Write texts with their grades, from paragraphs that no shard uses."""
    graded = islice(documents(seed, part=Part.TRAINING), rows)
    labelled = ({"text": one.text, "label": one.grade, "kind": one.kind.value} for one in graded)
    _write(path, LABELLED, _row_groups(labelled, LABELLED, 1000))


def true_kind(file_path: str) -> Kind:
    """The true kind of a row of a demo shard, from its `file_path`, to compare with its score."""
    found = re.search("/segments/demo/([^/]+)/", file_path)
    if not found or found[1] not in set(Kind):
        raise ValueError(
            f'"{file_path}" is not the file_path of a demo row: it does not contain /segments/demo/<kind>/.'
        )
    return Kind(found[1])


def _fineweb_rows(seed: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(f"{seed} of the columns beside the text")
    for number, document in enumerate(documents(seed)):
        yield _fineweb_row(document, number, rng)


def _fineweb_row(document: Document, number: int, rng: random.Random) -> dict[str, Any]:
    crawled = CRAWLED_FROM + CRAWLED_FOR * rng.random()
    return {
        "text": document.text,
        "id": f"<urn:uuid:{UUID(int=rng.getrandbits(128), version=4)}>",
        "dump": CRAWL,
        "url": f"https://{document.source}.example/{number}",
        "date": f"{crawled:%Y-%m-%dT%H:%M:%SZ}",
        "file_path": f"s3://commoncrawl/crawl-data/{CRAWL}/segments/demo/{document.kind}/{document.source}.warc.gz",
        "language": "en",
        "language_score": round(rng.uniform(0.65, 1.0), 4),
        "token_count": len(document.text) // 4,
    }


def _row_groups(rows: Iterable[dict[str, Any]], schema: pa.Schema, row_group_rows: int) -> Iterator[pa.Table]:
    remaining = iter(rows)
    while group := list(islice(remaining, row_group_rows)):
        yield pa.Table.from_pylist(group, schema)


def _write(path: Path, schema: pa.Schema, row_groups: Iterable[pa.Table], *, enough_bytes: float = math.inf) -> None:
    """Write to a temporary name and rename, so that a file at this path is always whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file, pq.ParquetWriter(file, schema, use_dictionary=False) as writer:
        for row_group in row_groups:
            writer.write_table(row_group)
            if file.tell() >= enough_bytes:
                break
    partial.replace(path)
