"""A run of four small shards on the Hub, with ways to disturb it and to see what a user sees."""

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi

from fleet.broker import make_app
from fleet.ledger import Claim, Ledger, Publication
from fleet.receipt import Receipt
from fleet.settings import Settings
from fleet.shard import Shard
from fleet.spec import RunSpec
from fleet.storage.hub import HubOutput
from hubserver import HubServer
from producer.enqueue import Enqueued, enqueue
from producer.finalizer.publish import NotReady
from producer.plan import Plan
from support.hub_fleet import Client, finalize, noise, outputs, stage, titles
from support.records import a_shard

SHARDS = A, B, C, D = tuple(a_shard(f"crawl/{name}") for name in "abcd")


# --- what the clients do, each in its process ------------------------------------------------------------------------


def look(redis_url: str, run_id: str, wave_shards: int, wave_seconds: float = 3600) -> str:
    """Check a run, as the finalizer does on request."""
    os.environ["REDIS_URL"] = redis_url
    os.environ["SHARDSIFT_WAVE_SHARDS"] = str(wave_shards)
    os.environ["SHARDSIFT_WAVE_SECONDS"] = str(wave_seconds)
    from producer.finalizer.app import finalize_run_task

    return str(finalize_run_task(run_id=run_id))


def look_from_threads(redis_url: str, run_id: str, wave_shards: int, threads: int) -> list[str]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda _: look(redis_url, run_id, wave_shards), range(threads)))


def enqueue_again(redis_url: str, spec: RunSpec) -> Enqueued:
    settings = Settings(redis_url=redis_url)
    with make_app("test", settings) as app:
        return enqueue(
            Plan(spec=spec, shards=SHARDS), Ledger.connect(settings), app, resend_seconds=settings.resend_seconds
        )


def delete_repo(repo: str) -> None:
    HfApi().delete_repo(repo, repo_type="dataset")


def saved(spec: RunSpec) -> list[Receipt]:
    return list(HubOutput(spec.output_uri, spec.run_id).recovered().whole)


def write_to(repo: str, branch: str, path: str, content: bytes) -> None:
    HfApi().upload_file(path_or_fileobj=content, path_in_repo=path, repo_id=repo, repo_type="dataset", revision=branch)


# --- a run of four shards --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class HubRun:
    """A run, with ways to disturb it and to see what a user sees."""

    hub: HubServer
    repo: str
    spec: RunSpec
    worker: Client
    finalizer: Client
    redis_url: str
    ledger: Ledger
    folder: Path

    @property
    def run_id(self) -> str:
        return self.spec.run_id

    @property
    def branch(self) -> str:
        return f"shardsift/{self.run_id}"

    def score(self, *shards: Shard) -> dict[str, bytes]:
        """Stage shards and record them as done. Returns path → content of their files."""
        content = {}
        for shard in shards:
            files = (noise(self.folder / "data", 3_000), noise(self.folder / "scores", 1_000))
            content |= {shard.data_path: files[0].read_bytes(), shard.scores_path: files[1].read_bytes()}
            claim = self._claim(shard)
            self.ledger.complete(claim, self.worker.call(stage, self.spec, shard, files))
        return content

    def fail(self, *shards: Shard) -> None:
        for shard in shards:
            self.ledger.fail(self._claim(shard), "corrupt", "")

    def look(self, wave_shards: int, wave_seconds: float = 3600) -> str:
        return self.finalizer.call(look, self.redis_url, self.run_id, wave_shards, wave_seconds)

    def publish(self, *, without_failed: bool = False) -> Publication | NotReady:
        return self.finalizer.call(finalize, self.redis_url, self.run_id, without_failed)

    def enqueue(self) -> Enqueued:
        return self.finalizer.call(enqueue_again, self.redis_url, self.spec)

    def saved(self) -> list[Receipt]:
        return self.finalizer.call(saved, self.spec)

    def waves(self) -> list[set[str]]:
        """The paths that each commit on the run's branch changed, oldest first."""
        commits = self.hub.commits(self.repo, revision=self.branch)[:-1]
        return [{operation.path for operation in commit.operations} for commit in reversed(commits)]

    def titles(self) -> list[str]:
        return titles(self.hub, self.repo)

    def outputs(self) -> set[str]:
        return outputs(self.hub, self.repo)

    def branches(self) -> set[str]:
        return set(self.hub.branches(self.repo))

    def main_has(self, content: Mapping[str, bytes]) -> bool:
        return self._has(content, "main")

    def branch_has(self, content: Mapping[str, bytes]) -> bool:
        return self._has(content, self.branch)

    def _has(self, content: Mapping[str, bytes], revision: str) -> bool:
        return all(self.hub.read(self.repo, path, revision=revision) == content[path] for path in content)

    def _claim(self, shard: Shard) -> Claim:
        claim = self.ledger.claim(self.run_id, shard.name, "w1")
        assert isinstance(claim, Claim)
        return claim


def data_of(paths: Iterable[str]) -> set[str]:
    return {path for path in paths if path.startswith(("data/", "scores/"))}
