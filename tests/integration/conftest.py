"""A Redis and a Hub that all tests share, their clients, and an empty place for an output of each kind.

Each test empties the Redis or has a run of its own, and has its own repository.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import fsspec
import pytest
from celery import Celery
from huggingface_hub import HfApi

from hubserver import HubServer
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.broker import make_app
from shardsift.fleet.process.settings import Settings
from shardsift.producer.local.redis import embedded_redis
from support.hub_fleet import used_here
from support.output_runs import FILES, PublishedOnHub
from support.outputs import Published

_numbers = count()


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with embedded_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="session")
def hubs() -> Iterator[Callable[[str], HubServer]]:
    """A hub for uploads by "lfs" or "xet". Each is started at its first use and stays for the session."""
    with ExitStack() as stack:
        yield cache(lambda upload: stack.enter_context(HubServer(xet=upload == "xet")))


@pytest.fixture(scope="module")
def running_hub(hubs: Callable[[str], HubServer]) -> HubServer:
    """For promises that do not depend on how bytes are uploaded."""
    return hubs("lfs")


@pytest.fixture
def hub(running_hub: HubServer, tmp_path: Path) -> Iterator[HubServer]:
    """The hub that this process uses."""
    running_hub.forget_requests()
    with used_here(running_hub, tmp_path):
        yield running_hub


@pytest.fixture(params=[*FILES, "hub"])
def files(request: pytest.FixtureRequest, hubs: Callable[[str], HubServer], tmp_path: Path) -> Iterator[Published]:
    """An empty place of each kind for an output."""
    name = f"out-{next(_numbers)}"
    match request.param:
        case "folder":
            yield Published(str(tmp_path / "out"))
        case "memory":
            yield Published(f"memory://{name}")
            with suppress(FileNotFoundError):
                fsspec.filesystem("memory").rm(f"memory://{name}", recursive=True)
        case "bucket":
            with used_here(hubs("xet"), tmp_path):
                HfApi().create_bucket(uri := f"hf://buckets/org/{name}")
                yield Published(uri)
        case "hub" | "hub by xet":
            hub = hubs("xet" if "xet" in request.param else "lfs")
            hub.create_repo(f"org/{name}")
            with used_here(hub, tmp_path):
                yield PublishedOnHub(hub, f"org/{name}")


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
