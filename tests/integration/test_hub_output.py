"""An output on the Hub: workers send the bytes, the finalizer makes one commit of them, and no accident makes two.

The clients are processes of their own, as in a fleet, each with its token; the Hub is the local one.
"""

import hashlib
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import HfApi

from fleet.broker import make_app
from fleet.errors import ShardError, TransientError, UsageError
from fleet.ledger import Claim, Ledger, Publication
from fleet.receipt import OutputFile, Receipt
from fleet.settings import Settings
from fleet.shard import Shard
from fleet.spec import RunSpec
from fleet.storage.hub import HubOutput, repo_id_of
from fleet.storage.output import CARD_PATH, MANIFEST_PATH, Mark
from hubserver import HubServer
from producer.enqueue import Enqueued, Plan, enqueue
from producer.finalizer.publish import NotReady, finalize_run
from producer.local.redis_server import embedded_redis
from support.records import a_receipt, a_shard, a_spec
from support.waiting import wait_until

SHARD_BYTES = 300_000
SHARDS = [a_shard("CC-MAIN-2024-10/000_00000"), a_shard("CC-MAIN-2024-10/000_00001")]
T = TypeVar("T")
_numbers = count()
_random = random.Random(7)


# --- what the clients do, each in its process ------------------------------------------------------------------------


def reserve(spec: RunSpec) -> None:
    HubOutput(spec.output_uri, spec.run_id).reserve(spec)


def stage(spec: RunSpec, shard: Shard, files: tuple[Path, Path]) -> Receipt:
    """What a worker does at the end of a shard."""
    output = HubOutput(spec.output_uri, spec.run_id)
    data, scores = (
        OutputFile(
            path=path,
            staged_path=output.stage(file, path, attempt="1-aa"),
            size_bytes=file.stat().st_size,
            sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
            rows=1,
        )
        for file, path in zip(files, (shard.data_path, shard.scores_path), strict=True)
    )
    receipt = a_receipt(spec.run_id, shard, data=data, scores=scores)
    receipt = replace(receipt, provenance=replace(receipt.provenance, finished_at=time.time()))
    output.keep_receipt(receipt)
    return receipt


def finalize(redis_url: str, run_id: str, without_failed: bool = False) -> Publication | NotReady:
    return finalize_run(Ledger.connect(Settings(redis_url=redis_url)), run_id, without_failed=without_failed)


def finalize_from_threads(redis_url: str, run_id: str, threads: int) -> list[Publication | NotReady]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda _: finalize(redis_url, run_id), range(threads)))


def look(redis_url: str, run_id: str, wave_shards: int, wave_seconds: float = 3600) -> str:
    """What the finalizer does when it is asked to look at a run."""
    os.environ["REDIS_URL"] = redis_url
    os.environ["SHARDSIFT_WAVE_SHARDS"] = str(wave_shards)
    os.environ["SHARDSIFT_WAVE_SECONDS"] = str(wave_seconds)
    from producer.finalizer.app import finalize_run_task

    return str(finalize_run_task(run_id=run_id))


def look_from_threads(redis_url: str, run_id: str, wave_shards: int, threads: int) -> list[str]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda _: look(redis_url, run_id, wave_shards), range(threads)))


def enqueue_again(redis_url: str, spec: RunSpec, shards: list[Shard]) -> Enqueued:
    settings = Settings(redis_url=redis_url)
    with make_app("test", settings) as app:
        return enqueue(
            Plan(spec=spec, shards=tuple(shards)), Ledger.connect(settings), app, resend_seconds=settings.resend_seconds
        )


def saved(spec: RunSpec) -> list[Receipt]:
    return list(HubOutput(spec.output_uri, spec.run_id).receipts())


def write_to(repo: str, branch: str, path: str, content: bytes) -> None:
    HfApi().upload_file(path_or_fileobj=content, path_in_repo=path, repo_id=repo, repo_type="dataset", revision=branch)


def published(spec: RunSpec) -> Mark | None:
    return HubOutput(spec.output_uri, spec.run_id).published()


def _with_token(token: str, function: Callable[..., T], *arguments: Any) -> T:
    os.environ["HF_TOKEN"] = token
    return function(*arguments)


# --- the fleet as a test holds it ------------------------------------------------------------------------------------


class Client:
    """A process of the fleet, with a token of its own."""

    def __init__(self, hub: HubServer, home: Path, name: str) -> None:
        self.token = hub.token(name)
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        with pytest.MonkeyPatch.context() as patch:  # the child takes the environment of its birth
            for variable in list(os.environ):
                patch.delenv(variable)
            for variable, value in hub.client_env(home).items():
                patch.setenv(variable, value)
            self._pool.submit(os.getpid).result()

    def start(self, function: Callable[..., T], *arguments: Any, token: str | None = None) -> "Future[T]":
        return self._pool.submit(_with_token, token or self.token, function, *arguments)

    def call(self, function: Callable[..., T], *arguments: Any, token: str | None = None) -> T:
        return self.start(function, *arguments, token=token).result()

    def kill(self) -> None:
        (process,) = self._pool._processes.values()
        process.kill()

    def close(self) -> None:
        self._pool.shutdown()


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with embedded_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="module", params=["lfs", "xet"])
def running_hub(request: pytest.FixtureRequest) -> Iterator[HubServer]:
    with HubServer(xet=request.param == "xet") as hub:
        yield hub


@pytest.fixture
def hub(running_hub: HubServer) -> Iterator[HubServer]:
    running_hub.forget_requests()
    yield running_hub
    assert running_hub.handler_errors == []
    assert running_hub.faults_left == 0


@pytest.fixture(scope="module")
def worker(running_hub: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    client = Client(running_hub, tmp_path_factory.mktemp("worker-home"), "worker")
    yield client
    client.close()


@pytest.fixture(scope="module")
def finalizer(running_hub: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    client = Client(running_hub, tmp_path_factory.mktemp("finalizer-home"), "finalizer")
    yield client
    client.close()


@pytest.fixture
def ledger(redis_url: str) -> Ledger:
    return Ledger.connect(Settings(redis_url=redis_url))


@pytest.fixture
def repo(hub: HubServer) -> str:
    repo = f"org/out-{next(_numbers)}"
    hub.create_repo(repo)
    return repo


@pytest.fixture
def spec(repo: str) -> RunSpec:
    return a_spec(output_uri=f"hf://datasets/{repo}")


@pytest.fixture
def staged(worker: Client, ledger: Ledger, spec: RunSpec, tmp_path: Path) -> dict[str, bytes]:
    """A run whose shards are all done and staged; its files' content by path."""
    content = {}
    ledger.create_run(spec, SHARDS, now=1.0)
    for shard in SHARDS:
        files = (noise(tmp_path / "data", SHARD_BYTES), noise(tmp_path / "scores", SHARD_BYTES // 3))
        content |= {shard.data_path: files[0].read_bytes(), shard.scores_path: files[1].read_bytes()}
        claim = ledger.claim(spec.run_id, shard.name, "w1")
        assert isinstance(claim, Claim)
        ledger.complete(claim, worker.call(stage, spec, shard, files))
    return content


def noise(file: Path, size_bytes: int) -> Path:
    file.write_bytes(_random.randbytes(size_bytes))
    return file


def titles(hub: HubServer, repo: str) -> list[str]:
    return [commit.title for commit in hub.commits(repo)]


def outputs(hub: HubServer, repo: str) -> set[str]:
    return hub.files(repo).keys() - {".gitattributes"}


def score(worker: Client, ledger: Ledger, spec: RunSpec, folder: Path, *shards: Shard) -> dict[str, bytes]:
    """Have shards staged and recorded as done; their files' content by path."""
    content = {}
    for shard in shards:
        files = (noise(folder / "data", 3_000), noise(folder / "scores", 1_000))
        content |= {shard.data_path: files[0].read_bytes(), shard.scores_path: files[1].read_bytes()}
        claim = ledger.claim(spec.run_id, shard.name, "w1")
        assert isinstance(claim, Claim)
        ledger.complete(claim, worker.call(stage, spec, shard, files))
    return content


def branch_of(spec: RunSpec) -> str:
    return f"shardsift/{spec.run_id}"


def waves(hub: HubServer, repo: str, spec: RunSpec) -> list[set[str]]:
    """The paths that each commit to the run's branch changed, oldest first."""
    commits = hub.commits(repo, revision=branch_of(spec))[:-1]
    return [{operation.path for operation in commit.operations} for commit in reversed(commits)]


def data_of(paths: set[str]) -> set[str]:
    return {path for path in paths if path.startswith(("data/", "scores/"))}


class TestPublishing:
    def test_workers_send_the_bytes_and_the_finalizer_makes_one_commit(
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        staged: dict[str, bytes],
        finalizer: Client,
        redis_url: str,
        ledger: Ledger,
    ) -> None:
        before = outputs(hub, repo)

        publication = finalizer.call(finalize, redis_url, spec.run_id)

        sent = {name: sum(r.bytes_in for r in hub.requests if r.token_name == name) for name in ("worker", "finalizer")}
        assert sent["worker"] >= sum(map(len, staged.values()))
        assert sent["finalizer"] < 64 << 10
        assert before == set()
        assert titles(hub, repo) == [f"Publish run {spec.run_id}", "initial commit"]
        assert hub.commits(repo)[0].author == "finalizer"
        assert outputs(hub, repo) == {*staged, MANIFEST_PATH, CARD_PATH}
        assert {path: hub.read(repo, path) for path in staged} == staged
        assert publication == Publication(uri=spec.output_uri, commit=hub.commits(repo)[0].oid, shards=2)
        assert ledger.publication(spec.run_id) == publication

    def test_the_manifest_on_the_hub_names_what_is_beside_it(
        self, hub: HubServer, repo: str, spec: RunSpec, staged: dict[str, bytes], finalizer: Client, redis_url: str
    ) -> None:
        finalizer.call(finalize, redis_url, spec.run_id)

        lines = pq.read_table(pa.BufferReader(hub.read(repo, MANIFEST_PATH))).to_pylist()
        for line in lines:
            assert line["data_sha256"] == hashlib.sha256(staged[line["data_path"]]).hexdigest()
            assert line["scores_size_bytes"] == len(staged[line["scores_path"]])
        assert finalizer.call(published, spec).run_id == spec.run_id

    def test_a_published_run_is_not_committed_again(
        self, hub: HubServer, repo: str, spec: RunSpec, staged: dict[str, bytes], finalizer: Client, redis_url: str
    ) -> None:
        first = finalizer.call(finalize, redis_url, spec.run_id)

        assert finalizer.call(finalize, redis_url, spec.run_id) == first
        assert len(titles(hub, repo)) == 2

    def test_finalizers_that_race_make_one_commit(
        self, hub: HubServer, repo: str, spec: RunSpec, staged: dict[str, bytes], finalizer: Client, redis_url: str
    ) -> None:
        hub.fault("/commit/", status=None, delay_seconds=0.5, times=2)  # all have looked before the first commit lands

        publications = finalizer.call(finalize_from_threads, redis_url, spec.run_id, 3)

        assert titles(hub, repo) == [f"Publish run {spec.run_id}", "initial commit"]
        assert {publication.commit for publication in publications} == {hub.commits(repo)[0].oid}
        assert 412 in [request.status for request in hub.requests if "/commit/" in request.path]

    def test_a_lost_answer_is_no_second_commit(
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        staged: dict[str, bytes],
        finalizer: Client,
        redis_url: str,
        ledger: Ledger,
    ) -> None:
        hub.fault("/commit/", method="POST", drop_after=True)
        with pytest.raises(TransientError, match="the network failed"):
            finalizer.call(finalize, redis_url, spec.run_id)
        assert ledger.publication(spec.run_id) is None

        publication = finalizer.call(finalize, redis_url, spec.run_id)

        assert titles(hub, repo) == [f"Publish run {spec.run_id}", "initial commit"]
        assert ledger.publication(spec.run_id) == publication
        assert publication.commit == hub.commits(repo)[0].oid

    def test_a_lost_request_is_sent_again_the_next_time(
        self, hub: HubServer, repo: str, spec: RunSpec, staged: dict[str, bytes], finalizer: Client, redis_url: str
    ) -> None:
        hub.fault("/commit/", method="POST", drop=True)
        with pytest.raises(TransientError, match="the network failed"):
            finalizer.call(finalize, redis_url, spec.run_id)

        finalizer.call(finalize, redis_url, spec.run_id)

        assert titles(hub, repo) == [f"Publish run {spec.run_id}", "initial commit"]

    def test_a_commit_of_somebody_else_in_between_is_looked_at_and_kept(
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        staged: dict[str, bytes],
        finalizer: Client,
        redis_url: str,
        tmp_path: Path,
    ) -> None:
        (tmp_path / "theirs").mkdir()
        (tmp_path / "theirs/notes.txt").write_text("ours too")
        hub.fault("/commit/", method="POST", status=None, delay_seconds=1.0)

        publishing = finalizer.start(finalize, redis_url, spec.run_id)
        wait_until(lambda: hub.faults_left == 0, description="the commit is on its way")
        hub.add_folder(repo, tmp_path / "theirs", message="Notes")
        publishing.result()

        assert titles(hub, repo) == [f"Publish run {spec.run_id}", "Notes", "initial commit"]
        assert [request.status for request in hub.requests if "/commit/" in request.path] == [412, 200]
        assert "notes.txt" in hub.files(repo)

    @pytest.mark.parametrize("status", [409, 429, 500, 503])
    def test_a_hub_in_trouble_is_tried_again_later(
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        staged: dict[str, bytes],
        finalizer: Client,
        redis_url: str,
        status: int,
    ) -> None:
        hub.fault("/commit/", method="POST", status=status)
        with pytest.raises(TransientError, match=f"the Hub answered {status}"):
            finalizer.call(finalize, redis_url, spec.run_id)
        assert titles(hub, repo) == ["initial commit"]

        finalizer.call(finalize, redis_url, spec.run_id)

        assert titles(hub, repo) == [f"Publish run {spec.run_id}", "initial commit"]

    def test_blobs_that_the_hub_has_dropped_are_told_with_what_to_do(
        self, hub: HubServer, repo: str, spec: RunSpec, staged: dict[str, bytes], finalizer: Client, redis_url: str
    ) -> None:
        hub.forget_unreferenced_blobs()

        with pytest.raises(ShardError, match="the Hub has dropped files .* producer retry .* --all"):
            finalizer.call(finalize, redis_url, spec.run_id)

        assert titles(hub, repo) == ["initial commit"]

    def test_data_that_another_run_published_meanwhile_is_left_alone(
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        staged: dict[str, bytes],
        finalizer: Client,
        redis_url: str,
        tmp_path: Path,
    ) -> None:
        publish_as_other_run(hub, repo, tmp_path)

        with pytest.raises(UsageError, match="now holds the data of another run, other"):
            finalizer.call(finalize, redis_url, spec.run_id)

        assert titles(hub, repo) == ["Other", "initial commit"]


def publish_as_other_run(hub: HubServer, repo: str, folder: Path) -> None:
    (folder / "other").mkdir()
    table = pa.table({"shard": ["x"]}).replace_schema_metadata(Mark.of("other", []).as_metadata())
    pq.write_table(table, folder / "other" / MANIFEST_PATH)
    hub.add_folder(repo, folder / "other", message="Other")


A, B, C, D = (a_shard(f"crawl/{name}") for name in "abcd")


class TestWaves:
    """A run that takes longer than the Hub keeps blobs. Its shards are small here, and a wave is two of them."""

    @pytest.fixture
    def run(self, ledger: Ledger, spec: RunSpec) -> str:
        ledger.create_run(spec, [A, B, C, D], now=1.0)
        return spec.run_id

    @pytest.fixture
    def scored(self, worker: Client, ledger: Ledger, spec: RunSpec, run: str, tmp_path: Path) -> dict[str, bytes]:
        """Two shards are done and two are not."""
        return score(worker, ledger, spec, tmp_path, A, B)

    def test_a_wave_is_a_commit_on_a_branch_that_readers_do_not_see(
        self, hub: HubServer, repo: str, spec: RunSpec, scored: dict[str, bytes], finalizer: Client, redis_url: str
    ) -> None:
        said = finalizer.call(look, redis_url, spec.run_id, 2)

        (wave,) = waves(hub, repo, spec)
        (document,) = wave - data_of(wave)
        assert said == "not published: 2 shards are not done yet; saved 2 shards"
        assert data_of(wave) == scored.keys()
        assert document.startswith(f".shardsift/{spec.run_id}/receipts/")
        assert {path: hub.read(repo, path, revision=branch_of(spec)) for path in scored} == scored
        assert titles(hub, repo) == ["initial commit"]
        assert outputs(hub, repo) == set()
        assert finalizer.call(published, spec) is None

    def test_a_wave_sends_no_data(
        self, hub: HubServer, spec: RunSpec, scored: dict[str, bytes], finalizer: Client, redis_url: str
    ) -> None:
        finalizer.call(look, redis_url, spec.run_id, 2)

        assert [r for r in hub.requests if r.token_name == "finalizer" and ("lfs" in r.path or "xet" in r.path)] == []

    def test_a_run_that_takes_longer_than_the_hub_keeps_blobs_is_published(
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        scored: dict[str, bytes],
        worker: Client,
        finalizer: Client,
        redis_url: str,
        ledger: Ledger,
        tmp_path: Path,
    ) -> None:
        finalizer.call(look, redis_url, spec.run_id, 2)
        hub.forget_unreferenced_blobs()
        scored |= score(worker, ledger, spec, tmp_path, C, D)

        finalizer.call(look, redis_url, spec.run_id, 2)

        assert titles(hub, repo) == [f"Publish run {spec.run_id}", "initial commit"]
        assert outputs(hub, repo) == {*scored, MANIFEST_PATH, CARD_PATH}
        assert {path: hub.read(repo, path) for path in scored} == scored
        assert hub.branches(repo).keys() == {"main"}
        assert ledger.publication(spec.run_id).commit == hub.commits(repo)[0].oid

    def test_a_run_that_ends_before_its_first_wave_makes_no_branch(
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        scored: dict[str, bytes],
        worker: Client,
        finalizer: Client,
        redis_url: str,
        ledger: Ledger,
        tmp_path: Path,
    ) -> None:
        hub.forget_requests()
        finalizer.call(look, redis_url, spec.run_id, 100)
        asked_while_it_ran = [request for request in hub.requests]
        score(worker, ledger, spec, tmp_path, C, D)

        finalizer.call(look, redis_url, spec.run_id, 100)

        assert asked_while_it_ran == []
        assert titles(hub, repo) == [f"Publish run {spec.run_id}", "initial commit"]
        assert [request for request in hub.requests if "/branch/" in request.path] == []

    def test_a_shard_that_is_old_is_not_kept_waiting_for_others(
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        run: str,
        worker: Client,
        finalizer: Client,
        redis_url: str,
        ledger: Ledger,
        tmp_path: Path,
    ) -> None:
        content = score(worker, ledger, spec, tmp_path, A)

        finalizer.call(look, redis_url, run, 100, 0.001)

        assert [data_of(wave) for wave in waves(hub, repo, spec)] == [content.keys()]

    def test_what_is_saved_is_not_saved_again(
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        scored: dict[str, bytes],
        worker: Client,
        finalizer: Client,
        redis_url: str,
        ledger: Ledger,
        tmp_path: Path,
    ) -> None:
        finalizer.call(look, redis_url, spec.run_id, 2)
        assert "saved" not in finalizer.call(look, redis_url, spec.run_id, 2)
        third = score(worker, ledger, spec, tmp_path, C)

        finalizer.call(look, redis_url, spec.run_id, 1)

        assert [data_of(wave) for wave in waves(hub, repo, spec)] == [scored.keys(), third.keys()]
        assert [receipt.shard for receipt in finalizer.call(saved, spec)] == [A.name, B.name, C.name]

    def test_finalizers_that_race_make_one_wave(
        self, hub: HubServer, repo: str, spec: RunSpec, scored: dict[str, bytes], finalizer: Client, redis_url: str
    ) -> None:
        hub.fault("/commit/", status=None, delay_seconds=0.5, times=2)  # all have looked before the first commit lands

        finalizer.call(look_from_threads, redis_url, spec.run_id, 2, 3)

        assert len(waves(hub, repo, spec)) == 1
        assert 412 in [request.status for request in hub.requests if "/commit/" in request.path]

    @pytest.mark.parametrize("step", ["/branch/", "/commit/"])
    @pytest.mark.parametrize("fault", [{"drop": True}, {"drop_after": True}])
    def test_a_lost_answer_is_no_second_wave(
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        scored: dict[str, bytes],
        finalizer: Client,
        redis_url: str,
        step: str,
        fault: dict[str, bool],
    ) -> None:
        hub.fault(step, method="POST", **fault)
        assert "saved" not in finalizer.call(look, redis_url, spec.run_id, 2)

        finalizer.call(look, redis_url, spec.run_id, 2)

        assert [data_of(wave) for wave in waves(hub, repo, spec)] == [scored.keys()]
        assert titles(hub, repo) == ["initial commit"]

    @pytest.mark.parametrize("step", ["/refs", "/paths-info/", "/branch/", "/commit/"])
    @pytest.mark.parametrize("status", [409, 412, 429, 503])
    def test_a_hub_in_trouble_is_asked_again_by_a_later_look(
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        scored: dict[str, bytes],
        finalizer: Client,
        redis_url: str,
        step: str,
        status: int,
    ) -> None:
        hub.fault(step, status=status)

        for _ in range(2):
            finalizer.call(look, redis_url, spec.run_id, 2)

        assert [data_of(wave) for wave in waves(hub, repo, spec)] == [scored.keys()]

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
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        scored: dict[str, bytes],
        worker: Client,
        finalizer: Client,
        redis_url: str,
        ledger: Ledger,
        tmp_path: Path,
        method: str,
        step: str,
    ) -> None:
        hub.fault(step, method=method, status=None, delay_seconds=0.5)
        victim = Client(hub, tmp_path / "victim-home", "victim")

        def look_as_the_victim() -> None:
            looking = victim.start(look, redis_url, spec.run_id, 2)
            wait_until(lambda: hub.faults_left == 0 or looking.done(), description="the victim comes to that step")
            if hub.faults_left == 0:
                victim.kill()
            looking.exception()

        look_as_the_victim()
        scored |= score(worker, ledger, spec, tmp_path, C, D)
        if hub.faults_left:
            look_as_the_victim()
        wait_until(
            lambda: any(r.method == method and step in r.path for r in hub.requests),
            description="the Hub has done what the victim asked for",
        )
        victim.close()

        finalizer.call(look, redis_url, spec.run_id, 2)

        assert titles(hub, repo) == [f"Publish run {spec.run_id}", "initial commit"]
        assert {path: hub.read(repo, path) for path in scored} == scored
        assert outputs(hub, repo) == {*scored, MANIFEST_PATH, CARD_PATH}
        assert hub.branches(repo).keys() == {"main"}
        assert ledger.publication(spec.run_id).commit == hub.commits(repo)[0].oid

    @pytest.mark.parametrize("fault", [{"status": 503}, {"drop": True}, {"drop_after": True}])
    def test_a_branch_that_could_not_be_removed_is_removed_by_a_later_look(
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        scored: dict[str, bytes],
        worker: Client,
        finalizer: Client,
        redis_url: str,
        ledger: Ledger,
        tmp_path: Path,
        fault: dict[str, Any],
    ) -> None:
        finalizer.call(look, redis_url, spec.run_id, 2)
        score(worker, ledger, spec, tmp_path, C, D)
        hub.fault("/branch/", method="DELETE", **fault)

        with pytest.raises(TransientError, match="Removing the branch"):
            finalizer.call(look, redis_url, spec.run_id, 2)
        finalizer.call(look, redis_url, spec.run_id, 2)

        assert titles(hub, repo) == [f"Publish run {spec.run_id}", "initial commit"]
        assert hub.branches(repo).keys() == {"main"}
        assert ledger.publication(spec.run_id).shards == 4

    def test_a_wave_that_another_finalizers_publication_overtook_leaves_no_branch(
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        scored: dict[str, bytes],
        worker: Client,
        finalizer: Client,
        redis_url: str,
        ledger: Ledger,
        tmp_path: Path,
    ) -> None:
        hub.fault("/branch/", method="POST", status=None, delay_seconds=2)
        slow = Client(hub, tmp_path / "slow-home", "slow")
        looking = slow.start(look, redis_url, spec.run_id, 2)
        wait_until(lambda: hub.faults_left == 0, description="the slow one makes the branch")

        score(worker, ledger, spec, tmp_path, C, D)
        finalizer.call(look, redis_url, spec.run_id, 2)
        looking.result()
        slow.close()

        assert titles(hub, repo) == [f"Publish run {spec.run_id}", "initial commit"]
        assert hub.branches(repo).keys() == {"main"}

    def test_blobs_that_the_hub_has_dropped_before_a_wave_are_told_with_what_to_do(
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        scored: dict[str, bytes],
        finalizer: Client,
        redis_url: str,
        ledger: Ledger,
    ) -> None:
        hub.forget_unreferenced_blobs()

        with pytest.raises(ShardError, match="the Hub has dropped files .* producer retry .* --all"):
            finalizer.call(look, redis_url, spec.run_id, 2)

        assert "the Hub has dropped files" in ledger.publish_error(spec.run_id)
        assert titles(hub, repo) == ["initial commit"]

    def test_a_shard_that_is_scored_again_replaces_what_was_saved(
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        scored: dict[str, bytes],
        worker: Client,
        finalizer: Client,
        redis_url: str,
        ledger: Ledger,
        tmp_path: Path,
    ) -> None:
        finalizer.call(look, redis_url, spec.run_id, 2)
        ledger.retry(spec.run_id, done_too=True)
        scored |= score(worker, ledger, spec, tmp_path, A)

        finalizer.call(look, redis_url, spec.run_id, 1)

        assert finalizer.call(saved, spec)[0] == next(ledger.receipts(spec.run_id))
        assert [receipt.shard for receipt in finalizer.call(saved, spec)] == [A.name, B.name]
        assert {path: hub.read(repo, path, revision=branch_of(spec)) for path in scored} == scored

    def test_what_was_published_without_failed_shards_needs_no_wave(
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        scored: dict[str, bytes],
        finalizer: Client,
        redis_url: str,
        ledger: Ledger,
    ) -> None:
        for shard in (C, D):
            claim = ledger.claim(spec.run_id, shard.name, "w1")
            assert isinstance(claim, Claim)
            ledger.fail(claim, "corrupt", "")
        finalizer.call(finalize, redis_url, spec.run_id, True)

        assert "saved" not in finalizer.call(look, redis_url, spec.run_id, 1)

        assert hub.branches(repo).keys() == {"main"}


class TestTakingOver:
    """Redis is gone with all that it held, and the same command is given again."""

    def test_what_the_waves_saved_is_not_scored_again(
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        worker: Client,
        finalizer: Client,
        redis_url: str,
        ledger: Ledger,
        tmp_path: Path,
    ) -> None:
        ledger.create_run(spec, [A, B, C, D], now=1.0)
        content = score(worker, ledger, spec, tmp_path, A, B, C)
        finalizer.call(look, redis_url, spec.run_id, 3)
        ledger.redis.flushall()
        hub.forget_unreferenced_blobs()

        again = finalizer.call(enqueue_again, redis_url, spec, [A, B, C, D])
        assert (again.added, again.restored, again.sent, again.counts.done) == (4, 3, 1, 3)
        content |= score(worker, ledger, spec, tmp_path, D)
        finalizer.call(look, redis_url, spec.run_id, 3)

        assert titles(hub, repo) == [f"Publish run {spec.run_id}", "initial commit"]
        assert {path: hub.read(repo, path) for path in content} == content
        assert hub.branches(repo).keys() == {"main"}

    def test_a_published_run_is_not_committed_again(
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        staged: dict[str, bytes],
        finalizer: Client,
        redis_url: str,
        ledger: Ledger,
    ) -> None:
        first = finalizer.call(finalize, redis_url, spec.run_id)
        ledger.redis.flushall()

        again = finalizer.call(enqueue_again, redis_url, spec, SHARDS)

        assert (again.restored, again.sent) == (2, 0)
        assert finalizer.call(finalize, redis_url, spec.run_id) == first
        assert len(titles(hub, repo)) == 2

    def test_what_was_saved_after_a_publication_counts_beside_it(
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        worker: Client,
        finalizer: Client,
        redis_url: str,
        ledger: Ledger,
        tmp_path: Path,
    ) -> None:
        ledger.create_run(spec, [A, B, C], now=1.0)
        score(worker, ledger, spec, tmp_path, A)
        for shard in (B, C):
            claim = ledger.claim(spec.run_id, shard.name, "w1")
            assert isinstance(claim, Claim)
            ledger.fail(claim, "corrupt", "")
        finalizer.call(finalize, redis_url, spec.run_id, True)
        ledger.retry(spec.run_id)
        score(worker, ledger, spec, tmp_path, B)
        finalizer.call(look, redis_url, spec.run_id, 1)

        assert [receipt.shard for receipt in finalizer.call(saved, spec)] == [A.name, B.name]
        assert [len(data_of(wave)) for wave in waves(hub, repo, spec)[1:]] == [2]  # the first is the publication

    def test_an_output_without_waves_and_publication_has_none(
        self, spec: RunSpec, staged: dict[str, bytes], finalizer: Client
    ) -> None:
        assert finalizer.call(saved, spec) == []

    def test_a_branch_without_a_wave_has_none(
        self, hub: HubServer, spec: RunSpec, staged: dict[str, bytes], finalizer: Client, redis_url: str, ledger: Ledger
    ) -> None:
        ledger.create_run(spec, [A], now=1.0)
        hub.fault("/commit/", method="POST", status=503)
        finalizer.call(look, redis_url, spec.run_id, 2)

        assert branch_of(spec) in hub.branches(spec.output_uri.removeprefix("hf://datasets/"))
        assert finalizer.call(saved, spec) == []

    @pytest.mark.parametrize("content", [b"", b"{\n\xff", a_receipt("other-run", A).to_json()])
    def test_what_is_no_receipt_of_this_run_is_skipped(
        self,
        repo: str,
        spec: RunSpec,
        worker: Client,
        finalizer: Client,
        redis_url: str,
        ledger: Ledger,
        tmp_path: Path,
        content: bytes,
    ) -> None:
        ledger.create_run(spec, [A, B], now=1.0)
        score(worker, ledger, spec, tmp_path, A)
        finalizer.call(look, redis_url, spec.run_id, 1)
        finalizer.call(write_to, repo, branch_of(spec), f".shardsift/{spec.run_id}/receipts/0.jsonl", content)

        assert [receipt.shard for receipt in finalizer.call(saved, spec)] == [A.name]

    def test_a_file_that_was_changed_on_the_branch_does_not_count(
        self,
        repo: str,
        spec: RunSpec,
        worker: Client,
        finalizer: Client,
        redis_url: str,
        ledger: Ledger,
        tmp_path: Path,
    ) -> None:
        ledger.create_run(spec, [A, B, C], now=1.0)
        score(worker, ledger, spec, tmp_path, A, B)
        finalizer.call(look, redis_url, spec.run_id, 2)
        finalizer.call(write_to, repo, branch_of(spec), A.data_path, b"theirs")

        assert [receipt.shard for receipt in finalizer.call(saved, spec)] == [B.name]


class TestStaging:
    def test_staged_files_are_in_no_commit(self, hub: HubServer, repo: str, staged: dict[str, bytes]) -> None:
        assert titles(hub, repo) == ["initial commit"]
        assert outputs(hub, repo) == set()

    def test_a_small_file_is_a_blob_too(self, hub: HubServer, spec: RunSpec, worker: Client, tmp_path: Path) -> None:
        files = (noise(tmp_path / "data", 700), noise(tmp_path / "scores", 300))

        worker.call(stage, spec, SHARDS[0], files)

        assert [request.path for request in hub.requests if "/commit/" in request.path] == []
        assert any("/info/lfs/" in request.path or "/xet-write-token/" in request.path for request in hub.requests)

    def test_a_token_without_rights_is_told_so(
        self, hub: HubServer, spec: RunSpec, worker: Client, tmp_path: Path
    ) -> None:
        files = (noise(tmp_path / "data", 700), noise(tmp_path / "scores", 300))

        with pytest.raises(ShardError, match="Give HF_TOKEN the rights"):
            worker.call(stage, spec, SHARDS[0], files, token=hub.token("reader", write=False))


class TestReserving:
    def test_a_repository_that_is_not_there_is_made(self, hub: HubServer, worker: Client) -> None:
        repo = f"org/new-{next(_numbers)}"
        spec = a_spec(output_uri=f"hf://datasets/{repo}")

        worker.call(reserve, spec)
        worker.call(reserve, spec)

        assert titles(hub, repo) == ["initial commit"]

    def test_a_token_that_may_only_read_is_refused(self, hub: HubServer, spec: RunSpec, worker: Client) -> None:
        with pytest.raises(UsageError, match="a dataset repository that HF_TOKEN can write"):
            worker.call(reserve, spec, token=hub.token("reader", write=False))

    def test_data_of_another_run_is_refused(
        self, hub: HubServer, repo: str, spec: RunSpec, worker: Client, tmp_path: Path
    ) -> None:
        publish_as_other_run(hub, repo, tmp_path)

        with pytest.raises(UsageError, match="holds the data of another run, other"):
            worker.call(reserve, spec)

    @pytest.mark.parametrize("path", ["data/a.parquet", "scores/a.parquet", MANIFEST_PATH])
    def test_data_of_nobody_we_know_is_refused(
        self, hub: HubServer, repo: str, spec: RunSpec, worker: Client, tmp_path: Path, path: str
    ) -> None:
        file = tmp_path / "theirs" / path
        file.parent.mkdir(parents=True)
        pq.write_table(pa.table({"a": [1]}), file)
        hub.add_folder(repo, tmp_path / "theirs")

        with pytest.raises(UsageError, match="holds data that no run of shardsift wrote"):
            worker.call(reserve, spec)

    def test_a_card_is_no_hindrance(
        self, hub: HubServer, repo: str, spec: RunSpec, worker: Client, tmp_path: Path
    ) -> None:
        (tmp_path / "theirs").mkdir()
        (tmp_path / "theirs/README.md").write_text("# To come")
        hub.add_folder(repo, tmp_path / "theirs")

        worker.call(reserve, spec)

    def test_a_published_run_may_be_reserved_again(
        self, spec: RunSpec, staged: dict[str, bytes], finalizer: Client, redis_url: str
    ) -> None:
        finalizer.call(finalize, redis_url, spec.run_id)

        finalizer.call(reserve, spec)

    def test_a_hub_in_trouble_is_one_line(self, hub: HubServer, spec: RunSpec, worker: Client) -> None:
        hub.fault("/api/datasets/", status=500)

        with pytest.raises(UsageError, match="the Hub answered 500") as refused:
            worker.call(reserve, spec)

        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("uri", "repo_id"), [("hf://datasets/me/out", "me/out"), ("hf://datasets/me/out/", "me/out")])
def test_an_output_is_named_by_user_and_name(uri: str, repo_id: str) -> None:
    assert repo_id_of(uri) == repo_id


@pytest.mark.parametrize(
    "uri",
    [
        "hf://me/out",
        "hf://datasets/out",
        "hf://datasets/me/out/data",
        "hf://datasets/me/out@main",
        "hf://datasets//",
        "hf://buckets/me/out",
    ],
)
def test_other_forms_are_refused(uri: str) -> None:
    with pytest.raises(UsageError, match="is written hf://datasets/<user>/<name>"):
        repo_id_of(uri)
