"""Write and list the shards of an input."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from producer.planning.inputs import list_input


def shard(path: Path, rows: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": [f"text {row}" for row in range(rows)]}), path)
    return path


def names(uri: str) -> list[str]:
    return [shard.name for shard in list_input(uri).shards]
