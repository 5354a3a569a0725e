"""Published datasets with a real ledger and a real model."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from shardsift.producer.local.demo_data import write_shards
from support.input_shards import with_first_texts
from support.published_dataset import ROWS, SHARDS, Dataset
from support.small_run import shared_runs


@pytest.fixture(scope="session")
def published(redis_url: str, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Dataset]:
    """Publish a run of three shards of 40 rows, of which about half are kept and one per shard is errored."""

    def publish_it(source: Path | None = None, **options: Any) -> Dataset:
        folder = tmp_path_factory.mktemp("dataset")
        if source is None:
            source = folder / "source"
            for shard in write_shards(source, shards=SHARDS, rows=ROWS, seed=1):
                pq.write_table(with_first_texts(pq.read_table(shard), [None]), shard)
        runs = shared_runs(redis_url, tiny_model, folder)
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
