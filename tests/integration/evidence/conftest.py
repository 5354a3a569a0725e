"""A published run of which is known which rows are good."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardsift.producer.local.demo_data import write_shards
from support.labelled_runs import ROWS, SHARDS, THRESHOLD, TOPICS, LabelledRun
from support.small_run import Runs, shared_runs


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards with a topic, of which the first row has no text."""
    folder = tmp_path_factory.mktemp("source")
    for number, file in enumerate(write_shards(folder, shards=SHARDS, rows=ROWS, seed=2)):
        rows = pq.read_table(file).to_pylist()
        rows[0]["text"] = rows[0]["text"] if number else None
        topics = [TOPICS[row % len(TOPICS)] for row in range(ROWS)]
        table = pa.Table.from_pylist(rows, pq.read_schema(file)).append_column("topic", pa.array(topics))
        pq.write_table(table, file)
    return folder


@pytest.fixture(scope="session")
def published(redis_url: str, tiny_model: Path, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = shared_runs(redis_url, tiny_model, tmp_path_factory.mktemp("published"))
    return runs.publish(source, min_score=THRESHOLD)


@pytest.fixture
def run(runs: Runs, published: Path, source: Path, redis_url: str, tmp_path: Path) -> LabelledRun:
    environment = {"REDIS_URL": redis_url}
    return LabelledRun(runs=runs, source=source, output=published, environment=environment, files=tmp_path)
