"""Look at a published output as its user would."""

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def published_rows(output: Path, kind: str = "data") -> pa.Table:
    """All rows of `data/` or `scores/`, in the order of the files' names."""
    return pa.concat_tables([pq.read_table(file) for file in sorted((output / kind).rglob("*.parquet"))])


def data_digests(output: Path) -> dict[str, str]:
    """path → sha256 of every published Parquet file but the manifest."""
    files = [file for kind in ("data", "scores") for file in (output / kind).rglob("*.parquet")]
    return {str(file.relative_to(output)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def manifest_lines(output: Path) -> list[dict[str, object]]:
    return list(pq.read_table(output / "manifest.parquet").to_pylist())
