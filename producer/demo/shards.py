"""Demo texts as Parquet: shards with the columns and types of FineWeb, and a labelled file to fit a head on.

Knows nothing of runs, queues or models. On one machine a seed always gives the same bytes.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from producer.demo.texts import Document, Kind, Part, documents

CRAWL = "CC-MAIN-2024-10"
SEGMENTS = f"s3://commoncrawl/crawl-data/{CRAWL}/segments/demo"

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
    """Write `000_00000.parquet` and so on with `rows` rows each; asked for more shards, the first stay the same."""
    folder.mkdir(parents=True, exist_ok=True)
    crawl = _Crawl(seed)
    paths = [folder / f"000_{number:05}.parquet" for number in range(shards)]
    for path in paths:
        with _parquet(path, FINEWEB) as writer:
            for first in range(0, rows, row_group_rows):
                writer.write_table(crawl.row_group(min(row_group_rows, rows - first)))
    return paths


def write_shard_of_size(path: Path, *, megabytes: float, seed: int, row_group_rows: int = 1000) -> None:
    """Write row groups until the file is at least that large; holds one row group in memory, whatever the size."""
    crawl = _Crawl(seed)
    with path.open("wb") as file, _parquet(file, FINEWEB) as writer:
        while file.tell() < megabytes * 1_000_000:
            writer.write_table(crawl.row_group(row_group_rows))


def write_labelled(path: Path, *, rows: int, seed: int) -> None:
    """Write texts with their grades, from paragraphs that no shard contains."""
    graded = list(islice(documents(seed, part=Part.TRAINING), rows))
    columns = {
        "text": [document.text for document in graded],
        "label": [document.grade for document in graded],
        "kind": [document.kind.value for document in graded],
    }
    with _parquet(path, LABELLED) as writer:
        writer.write_table(pa.table(columns, LABELLED))


def true_kind(file_path: str) -> Kind:
    """What a row of a demo shard really is, from its `file_path`, to hold the scores against."""
    folder, _, rest = file_path.removeprefix(f"{SEGMENTS}/").partition("/")
    if not (file_path.startswith(SEGMENTS) and rest and folder in Kind):
        raise ValueError(f'"{file_path}" is not the file_path of a demo row; those begin with {SEGMENTS}/<kind>/.')
    return Kind(folder)
