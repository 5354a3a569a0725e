"""A run on the Hub, with ways to disturb it and to see what a user sees."""

import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from hubserver import HubServer
from shardsift.fleet.ledger import Ledger, Publication
from shardsift.fleet.process.broker import make_app
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.run.spec import RunSpec, Shard
from shardsift.fleet.storage.hub import HubOutput
from shardsift.fleet.storage.output import CARD_PATH, MANIFEST_PATH, PICTURE_PATH
from shardsift.producer.finalizer import publish_or_save
from shardsift.producer.planning.enqueue import Enqueued, enqueue
from shardsift.producer.planning.plan import Plan
from shardsift.producer.publishing.publish import NotReady
from support.hub_fleet import User
from support.ledger_states import claimed
from support.output_runs import OutputRun
from support.records import a_receipt, a_shard, stage_file

SHARDS = A, B, C, D = tuple(a_shard(f"crawl/{name}") for name in ("a", "b (1) ü", "c", "d"))
_random = random.Random(7)


def output_of(spec: RunSpec) -> HubOutput:
    return HubOutput(spec.output_uri, spec.run_id)


def look(redis_url: str, run_id: str, wave_shards: int) -> Publication | NotReady | None:
    """Publish a run, or save its finished shards, as the finalizer does.

    Returns None if the ledger does not allow it now.
    """
    settings = Settings(redis_url=redis_url, wave_shards=wave_shards, sweep_seconds=1e-4)
    ledger = Ledger.connect(settings)
    return publish_or_save(ledger, run_id, settings) if ledger.may_publish(run_id) else None


@dataclass(frozen=True, kw_only=True)
class HubRun(OutputRun):
    """A run with its output on the Hub, ways to disturb it, and a user's view of it."""

    hub: HubServer
    repo: str
    redis_url: str
    folder: Path
    content: dict[str, bytes] = field(default_factory=dict)  # of the files that workers have staged, by path

    @property
    def branch(self) -> str:
        return f"shardsift/{self.run_id}"

    @property
    def worker(self) -> User:
        return User(self.hub, "worker")

    @property
    def finalizer(self) -> User:
        return User(self.hub, "finalizer")

    def reserved_spec(self) -> RunSpec:
        path = f".shardsift/{self.run_id}/spec.json"
        return RunSpec.from_json(self.hub.read(self.repo, path, revision=self.branch))

    def score(self, *shards: Shard, data_bytes: int = 3_000) -> dict[str, bytes]:
        """Stage shards and record them as done. Returns the content of their files by path."""
        for shard in shards:
            claim = claimed(self.ledger, self.run_id, shard)
            self.ledger.complete(claim, self.stage(shard, data_bytes=data_bytes))
        return {path: self.content[path] for shard in shards for path in (shard.data_path, shard.scores_path)}

    def stage(self, shard: Shard, *, data_bytes: int = 3_000) -> Receipt:
        """Stage random bytes as the files of a shard. The ledger is not told."""
        sizes = {shard.data_path: data_bytes, shard.scores_path: data_bytes // 3}
        self.content.update({path: _random.randbytes(size) for path, size in sizes.items()})
        return self.worker.call(self._stage, shard)

    def _stage(self, shard: Shard) -> Receipt:
        data, scores = (
            stage_file(self.output, path, self.content[path], self.folder, attempt="1-aa")
            for path in (shard.data_path, shard.scores_path)
        )
        receipt = a_receipt(self.run_id, shard, data=data, scores=scores)
        receipt = replace(receipt, provenance=replace(receipt.provenance, finished_at=time.time()))
        self.output.store_receipt(receipt)
        return receipt

    def look(self, wave_shards: int) -> Publication | NotReady | None:
        return self.finalizer.call(look, self.redis_url, self.run_id, wave_shards)

    def publish(self, *, without_failed: bool = False) -> Publication | NotReady:
        run = replace(self, ledger=Ledger.connect(Settings(redis_url=self.redis_url)))
        return self.finalizer.call(lambda: run.finalize(without_failed=without_failed))

    def enqueue(self) -> Enqueued:
        settings = Settings(redis_url=self.redis_url, state_uri=self.state_uri)
        with make_app("test", settings) as app:
            return enqueue(Plan(spec=self.spec, shards=SHARDS), Ledger.connect(settings), app, settings)

    def saved(self) -> list[Receipt]:
        return list(self.output.recovered().whole)

    def waves(self) -> list[set[str]]:
        """Return the paths that each commit on the run's branch changed, oldest commit first."""
        commits = self.hub.commits(self.repo, revision=self.branch)[:-1]
        return [{operation.path for operation in commit.operations} for commit in reversed(commits)]

    def titles(self) -> list[str]:
        return [commit.title for commit in self.hub.commits(self.repo)]

    def outputs(self) -> set[str]:
        """Return the published paths without the picture, which a publisher without matplotlib does not draw."""
        return self.hub.files(self.repo).keys() - {".gitattributes", PICTURE_PATH}

    def commit_statuses(self) -> list[int]:
        """Return the HTTP status of each request to commit, oldest first."""
        return [request.status for request in self.hub.requests if "/commit/" in request.path]

    def branches(self) -> set[str]:
        return set(self.hub.branches(self.repo))

    def has(self, content: Mapping[str, bytes], *, revision: str = "main") -> bool:
        return all(self.hub.read(self.repo, path, revision=revision) == content[path] for path in content)

    def check_published_once(self) -> None:
        """Check that one commit has published all that was scored, that the ledger knows it, and that no branch is left."""
        assert self.titles() == [f"Publish run {self.run_id}", "initial commit"]
        assert self.has(self.content)
        assert self.outputs() == {*self.content, MANIFEST_PATH, CARD_PATH}
        assert self.branches() == {"main"}
        assert self.publication.commit == self.hub.commits(self.repo)[0].oid


def data_of(paths: Iterable[str]) -> set[str]:
    return {path for path in paths if path.startswith(("data/", "scores/"))}
