"""Of the metadata of an input file, the output has what is true of its own rows and columns, and nothing else."""

import json
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardsift.fleet.run.output_columns import kept_schema
from support.records import a_spec

FEATURES = datasets.Features(
    {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"]), "n": datasets.Value("int8")}
)
INPUT = FEATURES.arrow_schema
OTHERS = {
    "org.apache.spark.sql.parquet.row.metadata": '{"type":"struct","fields":[]}',
    "org.apache.spark.version": "3.5.3",
    "parquet.avro.schema": "{}",
    "iceberg.schema": "{}",
    "geo": "{}",
    "pandas": '{"index_columns": [{"kind": "range", "start": 0, "stop": 9, "step": 1}], "columns": []}',
}


def test_metadata_that_describes_other_columns_and_rows_is_not_kept() -> None:
    assert kept_schema(INPUT.with_metadata(OTHERS), a_spec()).metadata is None


@pytest.mark.parametrize("target_file_bytes", [None, 100_000])
def test_features_of_datasets_are_kept_with_the_added_columns(tmp_path: Path, target_file_bytes: int | None) -> None:
    stale = json.loads(INPUT.metadata[b"huggingface"])
    stale["info"]["features"]["gone"] = {"dtype": "string", "_type": "Value"}
    stale |= {"fingerprint": "1234"}
    source = INPUT.with_metadata(OTHERS | {"huggingface": json.dumps(stale)})

    schema = kept_schema(source, a_spec(target_file_bytes=target_file_bytes))

    pq.write_table(schema.empty_table(), tmp_path / "a.parquet")
    assert {*pq.read_schema(tmp_path / "a.parquet").metadata} == {b"huggingface"}
    kept = json.loads(schema.metadata[b"huggingface"])
    assert kept.keys() == {"info"}
    assert [*kept["info"]["features"]] == schema.names
    found = datasets.Features.from_arrow_schema(pq.read_schema(tmp_path / "a.parquet"))
    added = {"shard": "string", "row": "int64", "score": "float32", "int_score": "int64"}
    assert found == FEATURES | {name: datasets.Value(kind) for name, kind in added.items()}
    assert list(pd.read_parquet(tmp_path / "a.parquet").columns) == schema.names


@pytest.mark.parametrize("damaged", [b"\xff", b"[]", b"{}", b'{"info": null}', b'{"info": {"features": ["text"]}}'])
def test_features_that_cannot_be_read_are_not_kept(damaged: Any) -> None:
    assert kept_schema(INPUT.with_metadata({"huggingface": damaged}), a_spec()).metadata is None
    assert kept_schema(pa.schema([("text", pa.string())]), a_spec()).metadata is None
