"""A Redis for each module, empty for every test, with its clients. A module or a folder may have its own instead."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.broker import make_app
from shardsift.fleet.process.settings import Settings
from shardsift.producer.local.redis import embedded_redis


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with embedded_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="session")
def shared_redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Redis that all files of a folder may share, if each of its tests empties it or uses a run of its own."""
    with embedded_redis(tmp_path_factory.mktemp("shared-redis")) as url:
        yield url


@pytest.fixture(scope="module", autouse=True)
def no_pictures() -> Iterator[pytest.MonkeyPatch]:
    """Publish without the picture of the scores, as without matplotlib: drawing it takes half the time of a small run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
        yield patch


@pytest.fixture(scope="module")
def pictures(no_pictures: pytest.MonkeyPatch) -> None:
    """Draw pictures after all. Skips without matplotlib."""
    no_pictures.delitem(sys.modules, "matplotlib.backends.backend_agg")
    pytest.importorskip("matplotlib")


@pytest.fixture
def ledger(redis_url: str) -> Ledger:
    ledger = Ledger.connect(Settings(redis_url=redis_url))
    ledger.redis.flushall()
    return ledger


@pytest.fixture(scope="session")
def scorer(tiny_model: Path) -> Any:
    """The tiny model, loaded as by a worker."""
    from shardsift.worker.scoring.load import load_classifier

    return load_classifier(str(tiny_model), "float32", device="cpu", parity_rows=0, threads=1)


@pytest.fixture
def runs(ledger: Ledger, scorer: Any, tiny_model: Path, tmp_path: Path) -> Any:
    """Whole runs by the tiny model."""
    from support.small_run import Runs

    return Runs(ledger=ledger, scorer=scorer, models=(str(tiny_model),), folder=tmp_path)


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    app = make_app("test", Settings(redis_url=redis_url))
    yield app
    app.close()
