"""A local Reddit, and `producer collect reddit` with PRAW's settings for it."""

from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from praw.config import Config

from support.processes import call_command
from support.reddit_server import Collect, RedditServer, serving_reddit


@pytest.fixture
def reddit() -> Iterator[RedditServer]:
    with serving_reddit() as server:
        server.add("Technology", 250)
        server.add("climate", 30)
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the command runs. It writes posts.parquet here."""
    folder = tmp_path / "study"
    folder.mkdir()
    return folder


@pytest.fixture
def environment(reddit: RedditServer, tmp_path: Path) -> dict[str, str]:
    return reddit.environment(tmp_path / "config")


@pytest.fixture
def collect(environment: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Collect:
    def command(subreddits: str, *options: str | Path) -> CompletedProcess[str]:
        monkeypatch.setattr(Config, "CONFIG", None)  # where PRAW keeps the praw.ini that a process has read
        arguments = ("collect", "reddit", "--subreddits", subreddits, "--output", "posts.parquet", *options)
        return call_command("producer", *arguments, environment=environment, folder=folder)

    return command
