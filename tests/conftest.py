"""Fixtures that several folders share. Only those that need torch import it, because `make test-light` has no torch."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from shardsift.fleet.errors import UsageError
from shardsift.producer.local.demo_data import write_shards
from support.fleet import Fleet, new_fleet
from support.injected_faults import InjectedFaults
from support.redis_servers import version_found

# A shell's background job ignores SIGINT, and so would the commands that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # set before torch is imported: the threads of two test processes would mostly wait


# `make test` draws the same examples each time, so that a change fails for what it changes; `make test-slow` draws others.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.load_profile("same")


def pytest_report_header() -> str:
    try:
        return f"ledger: {version_found()}"
    except UsageError as error:
        return f"ledger: {error}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first, so that all processes end at about the same time. The rest of the order stays random."""
    folders = ("acceptance/", "faults/", "integration/")
    items.sort(key=lambda item: [folder in item.nodeid for folder in folders], reverse=True)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Use one thread, because torch's threads mostly wait for each other on a busy machine."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random, untrained BERT classifier with two layers."""
    from support.models import tiny_classifier

    return tiny_classifier(tmp_path_factory.mktemp("models") / "tiny-bert")


@pytest.fixture(scope="session")
def minilm_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real MiniLM with a random head."""
    from support.models import minilm_classifier

    return minilm_classifier(tmp_path_factory.mktemp("models") / "minilm")


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 8 shards with 12 rows of real text each."""
    folder = tmp_path_factory.mktemp("data") / "shards"
    write_shards(folder, shards=8, rows=12, seed=1)
    return folder


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A fleet with its own empty Redis."""
    with new_fleet(tmp_path) as fleet:
        yield fleet


@pytest.fixture
def faults(tmp_path: Path) -> InjectedFaults:
    """Orders for processes that get its environment: workers score with the stand-in, which loads at once."""
    faults = InjectedFaults(tmp_path / "faults")
    faults.use_stand_in()
    return faults
