"""Copies of shards, and a Hub that has a crawl and the classifier under their public names."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hubserver import HubServer

CRAWL = "CC-MAIN-2024-10"
DATASET = "HuggingFaceFW/fineweb"
MODEL = "HuggingFaceFW/fineweb-edu-classifier"


def copy_shards(shards: Path, folder: Path, *, count: int = 8) -> Path:
    folder.mkdir(parents=True)
    for shard in sorted(shards.glob("*.parquet"))[:count]:
        shutil.copy(shard, folder)
    return folder


@contextmanager
def hub_with_a_crawl(
    shards: Path, model: Path, folder: Path, *, count: int = 8, xet: bool = True
) -> Iterator[HubServer]:
    copy_shards(shards, folder / "data" / CRAWL, count=count)
    with HubServer(xet=xet) as hub:
        hub.create_repo(DATASET)
        hub.add_folder(DATASET, folder, message="a crawl")
        hub.create_repo(MODEL, "model")
        hub.add_folder(MODEL, model, repo_type="model", message="the classifier")
        yield hub
        assert hub.handler_errors == []
