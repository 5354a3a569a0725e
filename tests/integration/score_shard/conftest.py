"""A real ledger, a real model and a real folder, for a shard from its claim to its receipt, without Celery."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.worker.scoring.load import load_classifier
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from support.claimed_shards import Office


@pytest.fixture(scope="session")
def ledger(redis_url: str) -> Iterator[Ledger]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield Ledger(client, Settings(lease_seconds=4))


@pytest.fixture(scope="session")
def scorer(tiny_model: Path) -> SequenceClassifier:
    return load_classifier(str(tiny_model), "float32")


@pytest.fixture
def office(ledger: Ledger, scorer: SequenceClassifier, tiny_model: Path, tmp_path: Path) -> Office:
    return Office(ledger, scorer, tiny_model, tmp_path)
