"""A run that takes longer than the Hub keeps blobs saves its finished shards on a branch, and finds them there again.

The shards are small here, and a wave has one or two of them.
"""

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi

from fleet.broker import make_app
from fleet.errors import ShardError, TransientError
from fleet.ledger import Claim, Ledger, Publication
from fleet.receipt import Receipt
from fleet.settings import Settings
from fleet.shard import Shard
from fleet.spec import RunSpec
from fleet.storage.hub import HubOutput
from fleet.storage.output import CARD_PATH, MANIFEST_PATH
from hubserver import HubServer
from producer.enqueue import Enqueued, enqueue
from producer.finalizer.publish import NotReady
from producer.plan import Plan
from producer.status import run_status
from support import hub_fleet
from support.hub_fleet import Client, finalize, noise, outputs, published, stage, titles
from support.records import a_receipt, a_shard
from support.waiting import wait_until

# The fixtures of both files of the Hub.
running_hub, hub, worker, finalizer = hub_fleet.running_hub, hub_fleet.hub, hub_fleet.worker, hub_fleet.finalizer
repo, spec = hub_fleet.repo, hub_fleet.spec

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


@pytest.fixture
def run(
    hub: HubServer,
    repo: str,
    spec: RunSpec,
    worker: Client,
    finalizer: Client,
    redis_url: str,
    ledger: Ledger,
    tmp_path: Path,
) -> HubRun:
    """A run that is enqueued and not started."""
    ledger.create_run(spec, SHARDS, now=1.0)
    return HubRun(
        hub=hub,
        repo=repo,
        spec=spec,
        worker=worker,
        finalizer=finalizer,
        redis_url=redis_url,
        ledger=ledger,
        folder=tmp_path,
    )


@pytest.fixture
def scored(run: HubRun) -> dict[str, bytes]:
    """Finish two of four shards. Returns the content of their files."""
    return run.score(A, B)


def data_of(paths: Iterable[str]) -> set[str]:
    return {path for path in paths if path.startswith(("data/", "scores/"))}


class TestWaves:
    def test_a_wave_is_a_commit_on_a_branch_that_readers_do_not_see(
        self, run: HubRun, scored: dict[str, bytes]
    ) -> None:
        said = run.look(2)

        (wave,) = run.waves()
        (document,) = wave - data_of(wave)
        assert said == "not published: 2 shards not done yet; saved 2 shards"
        assert data_of(wave) == scored.keys()
        assert document.startswith(f".shardsift/{run.run_id}/receipts/")
        assert run.branch_has(scored)
        assert run.titles() == ["initial commit"]
        assert run.outputs() == set()
        assert run.finalizer.call(published, run.spec) is None

    def test_a_wave_sends_no_data(self, run: HubRun, scored: dict[str, bytes]) -> None:
        run.look(2)

        asked = [request.path for request in run.hub.requests if request.token_name == "finalizer"]
        assert [path for path in asked if "lfs" in path or "xet" in path] == []

    def test_a_run_that_takes_longer_than_the_hub_keeps_blobs_is_published(
        self, run: HubRun, scored: dict[str, bytes]
    ) -> None:
        run.look(2)
        run.hub.forget_unreferenced_blobs()
        scored |= run.score(C, D)

        run.look(2)

        assert run.titles() == [f"Publish run {run.run_id}", "initial commit"]
        assert run.outputs() == {*scored, MANIFEST_PATH, CARD_PATH}
        assert run.main_has(scored)
        assert run.branches() == {"main"}
        assert run.ledger.publication(run.run_id).commit == run.hub.commits(run.repo)[0].oid

    def test_a_run_that_ends_before_its_first_wave_makes_no_branch(self, run: HubRun, scored: dict[str, bytes]) -> None:
        run.hub.forget_requests()
        run.look(100)
        asked_while_it_ran = list(run.hub.requests)
        run.score(C, D)

        run.look(100)

        assert asked_while_it_ran == []
        assert run.titles() == [f"Publish run {run.run_id}", "initial commit"]
        assert [request for request in run.hub.requests if "/branch/" in request.path] == []

    def test_a_shard_that_is_old_is_not_kept_waiting_for_others(self, run: HubRun) -> None:
        content = run.score(A)

        run.look(100, 0.001)

        assert [data_of(wave) for wave in run.waves()] == [content.keys()]

    def test_what_is_saved_is_not_saved_again(self, run: HubRun, scored: dict[str, bytes]) -> None:
        run.look(2)
        assert "saved" not in run.look(2)
        third = run.score(C)

        run.look(1)

        assert [data_of(wave) for wave in run.waves()] == [scored.keys(), third.keys()]
        assert [receipt.shard for receipt in run.saved()] == [A.name, B.name, C.name]

    def test_finalizers_that_race_make_one_wave(self, run: HubRun, scored: dict[str, bytes]) -> None:
        # So slow that all have looked before the first commit.
        run.hub.fault("/commit/", status=None, delay_seconds=0.5, times=2)

        run.finalizer.call(look_from_threads, run.redis_url, run.run_id, 2, 3)

        assert len(run.waves()) == 1
        assert 412 in [request.status for request in run.hub.requests if "/commit/" in request.path]

    @pytest.mark.parametrize("step", ["/branch/", "/commit/"])
    @pytest.mark.parametrize("fault", [{"drop": True}, {"drop_after": True}])
    def test_a_lost_answer_is_no_second_wave(
        self, run: HubRun, scored: dict[str, bytes], step: str, fault: dict[str, Any]
    ) -> None:
        run.hub.fault(step, method="POST", **fault)
        assert "saved" not in run.look(2)

        run.look(2)

        assert [data_of(wave) for wave in run.waves()] == [scored.keys()]
        assert run.titles() == ["initial commit"]

    @pytest.mark.parametrize("step", ["/refs", "/paths-info/", "/branch/", "/commit/"])
    @pytest.mark.parametrize("status", [409, 412, 429, 503])
    def test_a_hub_in_trouble_is_asked_again_by_a_later_look(
        self, run: HubRun, scored: dict[str, bytes], step: str, status: int
    ) -> None:
        run.hub.fault(step, status=status)

        for _ in range(2):
            run.look(2)

        assert [data_of(wave) for wave in run.waves()] == [scored.keys()]

    @pytest.mark.parametrize(
        ("method", "step"),
        [
            ("POST", "/branch/"),
            ("POST", "/commit/shardsift"),
            ("POST", "/commit/main"),
            ("DELETE", "/branch/"),
        ],
    )
    def test_a_finalizer_killed_at_any_step_is_followed_by_one_that_goes_on(
        self, run: HubRun, scored: dict[str, bytes], step: str, method: str, tmp_path: Path
    ) -> None:
        run.hub.fault(step, method=method, status=None, delay_seconds=0.5)
        victim = Client(run.hub, tmp_path / "victim-home", "victim")

        def look_as_the_victim() -> None:
            looking = victim.start(look, run.redis_url, run.run_id, 2)
            wait_until(lambda: run.hub.faults_left == 0 or looking.done(), description="the victim comes to that step")
            if run.hub.faults_left == 0:
                victim.kill()
            looking.exception()

        look_as_the_victim()
        scored |= run.score(C, D)
        if run.hub.faults_left:
            look_as_the_victim()
        wait_until(
            lambda: any(r.method == method and step in r.path for r in run.hub.requests),
            description="the Hub has done what the victim asked for",
        )
        victim.close()

        run.look(2)

        assert run.titles() == [f"Publish run {run.run_id}", "initial commit"]
        assert run.main_has(scored)
        assert run.outputs() == {*scored, MANIFEST_PATH, CARD_PATH}
        assert run.branches() == {"main"}
        assert run.ledger.publication(run.run_id).commit == run.hub.commits(run.repo)[0].oid

    @pytest.mark.parametrize("fault", [{"status": 503}, {"drop": True}, {"drop_after": True}])
    def test_a_branch_that_could_not_be_removed_is_removed_by_a_later_look(
        self, run: HubRun, scored: dict[str, bytes], fault: dict[str, Any]
    ) -> None:
        run.look(2)
        run.score(C, D)
        run.hub.fault("/branch/", method="DELETE", **fault)

        with pytest.raises(TransientError, match="Removing the branch"):
            run.look(2)
        run.look(2)

        assert run.titles() == [f"Publish run {run.run_id}", "initial commit"]
        assert run.branches() == {"main"}
        assert run.ledger.publication(run.run_id).shards == 4

    def test_a_wave_that_another_finalizers_publication_overtook_leaves_no_branch(
        self, run: HubRun, scored: dict[str, bytes], tmp_path: Path
    ) -> None:
        run.hub.fault("/branch/", method="POST", status=None, delay_seconds=2)
        slow = Client(run.hub, tmp_path / "slow-home", "slow")
        looking = slow.start(look, run.redis_url, run.run_id, 2)
        wait_until(lambda: run.hub.faults_left == 0, description="the slow one makes the branch")

        run.score(C, D)
        run.look(2)
        looking.result()
        slow.close()

        assert run.titles() == [f"Publish run {run.run_id}", "initial commit"]
        assert run.branches() == {"main"}

    def test_a_blob_that_the_hub_dropped_before_a_wave_costs_its_shard_alone(self, run: HubRun) -> None:
        lost = run.score(B)
        run.hub.forget_unreferenced_blobs()
        content = run.score(A, C)

        said = run.look(3)

        assert said == "not published: 2 shards not done yet; saved 2 shards"
        assert set().union(*map(data_of, run.waves())) == content.keys()
        assert run.ledger.take_due(run.run_id, room=0).again == [B.name]
        assert lost.keys().isdisjoint(run.outputs())

    def test_a_blob_that_the_hub_dropped_before_the_publication_costs_its_shard_alone(self, run: HubRun) -> None:
        run.score(B)
        run.hub.forget_unreferenced_blobs()
        content = run.score(A, C, D)

        said = run.look(100)
        run.hub.forget_unreferenced_blobs()  # blobs that still exist are saved from now on
        again = run.ledger.take_due(run.run_id, room=0).again
        content |= run.score(B)
        run.look(100)

        assert said == "not published: 1 shard queued again, since the stored files are lost or damaged"
        assert again == [B.name]
        assert run.titles() == [f"Publish run {run.run_id}", "initial commit"]
        assert run.main_has(content)
        assert run.branches() == {"main"}

    @pytest.mark.parametrize("place", ["wave", "publication"])
    def test_a_hub_that_asks_to_wait_is_not_asked_before(self, run: HubRun, place: str) -> None:
        run.score(A, B, *((C, D) if place == "publication" else ()))
        run.hub.fault("/commit/", method="POST", status=429, headers={"Retry-After": "3600"})
        with suppress(TransientError):
            run.look(2)
        run.hub.forget_requests()

        said = run.look(2)

        assert "the Hub answered 429" in said
        assert run.hub.requests == []

    def test_a_branch_that_the_hub_never_removes_does_not_keep_the_run_from_being_published(self, run: HubRun) -> None:
        run.score(A, B)
        run.look(2)
        run.score(C, D)
        run.hub.fault("/branch/", method="DELETE", status=500, times=3)

        for _ in range(2):
            with pytest.raises(TransientError, match="Removing the branch"):
                run.look(2)
        run.look(2)

        assert run.ledger.publication(run.run_id).shards == 4
        assert run.titles() == [f"Publish run {run.run_id}", "initial commit"]

    def test_a_shard_that_is_scored_again_replaces_what_was_saved(self, run: HubRun, scored: dict[str, bytes]) -> None:
        run.look(2)
        run.ledger.retry(run.run_id, done_too=True)
        scored |= run.score(A)

        run.look(1)

        assert run.saved()[0] == next(run.ledger.receipts(run.run_id))
        assert [receipt.shard for receipt in run.saved()] == [A.name, B.name]
        assert run.branch_has(scored)

    def test_what_was_published_without_failed_shards_needs_no_wave(
        self, run: HubRun, scored: dict[str, bytes]
    ) -> None:
        run.fail(C, D)
        run.publish(without_failed=True)

        assert "saved" not in run.look(1)

        assert run.branches() == {"main"}


class TestPublishingThatCannotSucceed:
    def test_a_repository_that_was_deleted_is_said_and_the_same_command_makes_it_again(self, run: HubRun) -> None:
        run.score(*SHARDS)
        run.finalizer.call(delete_repo, run.repo)

        with pytest.raises(ShardError, match="no such repository"):
            run.look(100)
        status = run_status(run.ledger, run.run_id)
        again = run.enqueue()
        run.look(100)
        content = run.score(*SHARDS)
        run.look(100)

        assert (status.is_over, status.exit_code) == (True, 1)
        assert again.counts.done == 4
        assert run.main_has(content)
        assert run.ledger.publication(run.run_id).shards == 4

    def test_a_token_that_lost_its_rights_is_said_and_not_asked_again(self, run: HubRun) -> None:
        run.score(*SHARDS)
        run.hub.fault("/commit/", method="POST", status=403)

        with pytest.raises(ShardError, match="the rights for this repository"):
            run.look(100)
        run.hub.forget_requests()
        said = run.look(100)

        assert said.startswith("not tried: ")
        assert run.hub.requests == []


class TestTakingOver:
    """Redis loses all data, and the same command is run again."""

    def test_what_the_waves_saved_is_not_scored_again(self, run: HubRun) -> None:
        content = run.score(A, B, C)
        run.look(3)
        run.ledger.redis.flushall()
        run.hub.forget_unreferenced_blobs()

        again = run.enqueue()
        assert (again.added, again.restored, again.sent, again.counts.done) == (4, 3, 1, 3)
        content |= run.score(D)
        run.look(3)

        assert run.titles() == [f"Publish run {run.run_id}", "initial commit"]
        assert run.main_has(content)
        assert run.branches() == {"main"}

    def test_a_published_run_is_not_committed_again(self, run: HubRun) -> None:
        run.score(A, B, C, D)
        first = run.publish()
        run.ledger.redis.flushall()

        again = run.enqueue()

        assert (again.restored, again.sent) == (4, 0)
        assert run.publish() == first
        assert len(run.titles()) == 2

    def test_what_was_saved_after_a_publication_counts_beside_it(self, run: HubRun) -> None:
        run.score(A)
        run.fail(B, C, D)
        run.publish(without_failed=True)
        run.ledger.retry(run.run_id)
        run.score(B)
        run.look(1)

        assert [receipt.shard for receipt in run.saved()] == [A.name, B.name]
        assert [len(data_of(wave)) for wave in run.waves()[1:]] == [2]  # the first is the publication

    def test_an_output_without_waves_and_publication_has_none(self, run: HubRun) -> None:
        run.score(A)

        assert run.saved() == []

    def test_a_branch_without_a_wave_has_none(self, run: HubRun) -> None:
        run.score(A)
        run.hub.fault("/commit/", method="POST", status=503)
        run.look(1)

        assert run.branches() == {"main", run.branch}
        assert run.saved() == []

    @pytest.mark.parametrize("content", [b"", b"{\n\xff", a_receipt("other-run", A).to_json()])
    def test_what_is_no_receipt_of_this_run_is_skipped(self, run: HubRun, content: bytes) -> None:
        run.score(A)
        run.look(1)
        run.finalizer.call(write_to, run.repo, run.branch, f".shardsift/{run.run_id}/receipts/0.jsonl", content)

        assert [receipt.shard for receipt in run.saved()] == [A.name]

    def test_a_file_that_was_changed_on_the_branch_does_not_count(self, run: HubRun) -> None:
        run.score(A, B)
        run.look(2)
        run.finalizer.call(write_to, run.repo, run.branch, A.data_path, b"theirs")

        assert [receipt.shard for receipt in run.saved()] == [B.name]
