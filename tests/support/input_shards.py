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


def write_odd_shards(shards: Path, folder: Path, texts: list[str | None]) -> Path:
    """Two copies of the first shard, a and b. The second begins with these texts."""
    folder.mkdir()
    table = pq.read_table(shards / "000_00000.parquet")
    pq.write_table(table, folder / "a.parquet")
    column = pa.array([*texts, *table["text"].to_pylist()[len(texts) :]], table.schema.field("text").type)
    odd = table.set_column(table.schema.get_field_index("text"), table.schema.field("text"), column)
    pq.write_table(odd, folder / "b.parquet")
    return folder
