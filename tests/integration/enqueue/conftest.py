"""A folder of three shards, an output, and the options of a run over them."""

from pathlib import Path

import pytest
from celery import Celery

from shardsift.fleet.ledger import Ledger
from shardsift.producer.planning.options import RunOptions
from support.enqueued_runs import Command, write


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three shards of ten rows."""
    folder = tmp_path / "input"
    folder.mkdir()
    for name in "abc":
        write(folder / f"{name}.parquet")
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def options(source: Path, out: Path, tiny_model: Path) -> RunOptions:
    return RunOptions(input_uris=(str(source),), models=(str(tiny_model),), output_uri=str(out))


@pytest.fixture
def command(options: RunOptions, ledger: Ledger, app: Celery) -> Command:
    return Command(options=options, ledger=ledger, app=app)
