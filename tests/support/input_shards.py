"""Write and list the shards of an input."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from shardsift.producer.planning.inputs import list_input


def shard(path: Path, rows: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": [f"text {row}" for row in range(rows)]}), path)
    return path


def names(uri: str) -> list[str]:
    return [shard.name for shard in list_input(uri).shards]


def write_odd_shards(shards: Path, folder: Path, texts: list[str | None]) -> Path:
    """Write two copies of the first shard, a and b. The second one begins with `texts`."""
    folder.mkdir()
    table = pq.read_table(shards / "000_00000.parquet")
    pq.write_table(table, folder / "a.parquet")
    pq.write_table(with_first_texts(table, texts), folder / "b.parquet")
    return folder


def with_first_texts(rows: pa.Table, texts: list[str | None]) -> pa.Table:
    field = rows.schema.field("text")
    column = pa.array([*texts, *rows["text"].to_pylist()[len(texts) :]], field.type)
    return rows.set_column(rows.schema.get_field_index("text"), field, column)
