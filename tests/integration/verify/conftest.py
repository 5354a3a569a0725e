"""Published datasets with a real ledger and a real model."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import redis

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.producer.local.demo_data import write_shards
from shardsift.worker.scoring.load import load_classifier
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from support.input_shards import with_first_texts
from support.published_dataset import ROWS, SHARDS, Dataset
from support.small_run import Runs


@pytest.fixture(scope="session")
def ledger(shared_redis_url: str) -> Iterator[Ledger]:
    with redis.Redis.from_url(shared_redis_url, decode_responses=True) as client:
        yield Ledger(client, Settings())


@pytest.fixture(scope="session")
def scorer(tiny_model: Path) -> SequenceClassifier:
    return load_classifier(str(tiny_model), "float32")


@pytest.fixture(scope="session")
def published(
    tmp_path_factory: pytest.TempPathFactory, ledger: Ledger, scorer: SequenceClassifier, tiny_model: Path
) -> Callable[..., Dataset]:
    """Publish a run of three shards of 40 rows, of which about half are kept and one per shard is errored."""

    def publish_it(source: Path | None = None, **options: Any) -> Dataset:
        folder = tmp_path_factory.mktemp("dataset")
        if source is None:
            source = folder / "source"
            for shard in write_shards(source, shards=SHARDS, rows=ROWS, seed=1):
                pq.write_table(with_first_texts(pq.read_table(shard), [None]), shard)
        runs = Runs(ledger=ledger, scorer=scorer, models=(str(tiny_model),), folder=folder)
        return Dataset(source=source, output=runs.publish(source, **options))

    return publish_it


@pytest.fixture(scope="session")
def original(published: Callable[..., Dataset]) -> Dataset:
    return published(where="score >= 2.5")


@pytest.fixture
def dataset(original: Dataset, tmp_path: Path) -> Dataset:
    """A copy of a sound dataset for one test."""
    shutil.copytree(original.output, tmp_path / "out")
    shutil.copytree(original.source, tmp_path / "source")
    return Dataset(source=tmp_path / "source", output=tmp_path / "out")
