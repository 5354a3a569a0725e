"""A published run of which is known which rows are good."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.producer.local.demo_data import write_shards
from support.labelled_runs import ROWS, SHARDS, THRESHOLD, TOPICS, LabelledRun
from support.small_run import Runs


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
def published(
    shared_redis_url: str, scorer: Any, tiny_model: Path, source: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    with redis.Redis.from_url(shared_redis_url, decode_responses=True) as client:
        ledger, folder = Ledger(client, Settings()), tmp_path_factory.mktemp("published")
        runs = Runs(ledger=ledger, scorer=scorer, models=(str(tiny_model),), folder=folder)
        return runs.publish(source, min_score=THRESHOLD)


@pytest.fixture
def run(published: Path, source: Path, shared_redis_url: str, tmp_path: Path) -> LabelledRun:
    return LabelledRun(source=source, output=published, environment={"REDIS_URL": shared_redis_url}, files=tmp_path)
