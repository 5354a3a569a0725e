"""A published run of which is known which rows are good."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.producer.local.demo_data import write_shards
from shardsift.worker.scoring.load import load_classifier
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from support.labelled_runs import ROWS, SHARDS, THRESHOLD, TOPICS, LabelledRun
from support.small_run import Runs


@pytest.fixture(scope="session")
def ledger(shared_redis_url: str) -> Iterator[Ledger]:
    with redis.Redis.from_url(shared_redis_url, decode_responses=True) as client:
        yield Ledger(client, Settings())


@pytest.fixture(scope="session")
def scorer(tiny_model: Path) -> SequenceClassifier:
    return load_classifier(str(tiny_model), "float32", parity_rows=0, threads=1)


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
    ledger: Ledger, scorer: SequenceClassifier, tiny_model: Path, source: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    runs = Runs(ledger=ledger, scorer=scorer, models=(str(tiny_model),), folder=tmp_path_factory.mktemp("published"))
    return runs.publish(source, min_score=THRESHOLD)


@pytest.fixture
def run(published: Path, source: Path, shared_redis_url: str, tmp_path: Path) -> LabelledRun:
    return LabelledRun(source=source, output=published, environment={"REDIS_URL": shared_redis_url}, files=tmp_path)
