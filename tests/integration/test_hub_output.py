"""Outputs on the Hub: workers upload the bytes, and the finalizer publishes them in one commit, never in two."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fleet.errors import ShardError, TransientError, UsageError
from fleet.ledger import Claim, Ledger, Publication
from fleet.spec import RunSpec
from fleet.storage.hub import HubOutput, repo_id_of
from fleet.storage.output import CARD_PATH, MANIFEST_PATH, Mark
from hubserver import HubServer
from producer.finalizer.publish import NotReady
from support import hub_fleet
from support.hub_fleet import Client, finalize, noise, outputs, published, stage, titles
from support.records import a_shard, a_spec
from support.waiting import wait_until

# The fixtures of both files of the Hub.
running_hub, hub, worker, finalizer = hub_fleet.running_hub, hub_fleet.hub, hub_fleet.worker, hub_fleet.finalizer
repo, spec = hub_fleet.repo, hub_fleet.spec

SHARD_BYTES = 300_000
SHARDS = [a_shard("CC-MAIN-2024-10/000_00000"), a_shard("CC-MAIN-2024-10/000_00001")]
_numbers = count()


def reserve(spec: RunSpec) -> None:
    HubOutput(spec.output_uri, spec.run_id).reserve(spec)


def finalize_from_threads(redis_url: str, run_id: str, threads: int) -> list[Publication | NotReady]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda _: finalize(redis_url, run_id), range(threads)))


@pytest.fixture
def staged(worker: Client, ledger: Ledger, spec: RunSpec, tmp_path: Path) -> dict[str, bytes]:
    """A run whose shards are all done and staged, and path → content of its files."""
    content = {}
    ledger.create_run(spec, SHARDS, now=1.0)
    for shard in SHARDS:
        files = (noise(tmp_path / "data", SHARD_BYTES), noise(tmp_path / "scores", SHARD_BYTES // 3))
        content |= {shard.data_path: files[0].read_bytes(), shard.scores_path: files[1].read_bytes()}
        claim = ledger.claim(spec.run_id, shard.name, "w1")
        assert isinstance(claim, Claim)
        ledger.complete(claim, worker.call(stage, spec, shard, files))
    return content


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
        hub.fault("/commit/", status=None, delay_seconds=0.5, times=2)  # all have looked before the first commit

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

    def test_shards_whose_blobs_the_hub_has_dropped_are_queued_again(
        self,
        hub: HubServer,
        repo: str,
        spec: RunSpec,
        staged: dict[str, bytes],
        finalizer: Client,
        redis_url: str,
        ledger: Ledger,
    ) -> None:
        hub.forget_unreferenced_blobs()

        outcome = finalizer.call(finalize, redis_url, spec.run_id)

        assert outcome == NotReady(reason="2 shards queued again, since the stored files are lost or damaged")
        assert titles(hub, repo) == ["initial commit"]
        assert ledger.counts(spec.run_id).queued == 2

    @pytest.mark.parametrize(
        ("headers", "seconds"),
        [({"Retry-After": "3600"}, 3600), ({"RateLimit": '"api";r=0;t=1200'}, 1200), ({}, None)],
    )
    def test_a_hub_that_asks_to_wait_says_for_how_long(
        self,
        hub: HubServer,
        spec: RunSpec,
        staged: dict[str, bytes],
        finalizer: Client,
        redis_url: str,
        headers: dict[str, str],
        seconds: float | None,
    ) -> None:
        hub.fault("/commit/", method="POST", status=429, headers=headers)

        with pytest.raises(TransientError) as refused:
            finalizer.call(finalize, redis_url, spec.run_id)

        assert refused.value.retry_after_seconds == seconds

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


def spec_on_branch(hub: HubServer, repo: str, spec: RunSpec) -> bytes:
    return hub.read(repo, f".shardsift/{spec.run_id}/spec.json", revision=f"shardsift/{spec.run_id}")


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
        assert RunSpec.from_json(spec_on_branch(hub, repo, spec)).input_revision == spec.input_revision

    def test_a_repository_that_another_run_reserved_is_refused_before_any_gpu_work(
        self, hub: HubServer, repo: str, spec: RunSpec, worker: Client
    ) -> None:
        worker.call(reserve, spec)
        other = a_spec(output_uri=spec.output_uri, where=None)

        with pytest.raises(
            UsageError, match=f"is reserved by another run, {spec.run_id}.* delete the branch shardsift/"
        ):
            worker.call(reserve, other)

        assert set(hub.branches(repo)) == {"main", f"shardsift/{spec.run_id}"}

    def test_of_two_runs_that_reserve_at_the_same_moment_not_both_go_on(
        self, hub: HubServer, repo: str, spec: RunSpec, worker: Client, finalizer: Client
    ) -> None:
        other = a_spec(output_uri=spec.output_uri, where=None)
        hub.fault("/branch/", method="POST", status=None, delay_seconds=0.5, times=2)  # both have looked before

        reserving = [worker.start(reserve, spec), finalizer.start(reserve, other)]
        ended = [future.exception() for future in reserving]
        hub.forget_faults()  # a late one saw the other's branch and did not create one

        went_on = [ending is None for ending in ended]
        assert sum(went_on) <= 1
        assert all(ending is None or isinstance(ending, UsageError) for ending in ended)
        kept = {f"shardsift/{run.run_id}" for run, goes_on in zip((spec, other), went_on, strict=True) if goes_on}
        assert set(hub.branches(repo)) == {"main"} | kept

    def test_a_reservation_whose_producer_died_midway_is_completed(
        self, hub: HubServer, repo: str, spec: RunSpec, worker: Client
    ) -> None:
        hub.fault("/commit/", method="POST", drop=True)
        with pytest.raises(UsageError, match="the network failed"):
            worker.call(reserve, spec)

        worker.call(reserve, spec)

        assert RunSpec.from_json(spec_on_branch(hub, repo, spec)).input_revision == spec.input_revision

    def test_the_reservation_goes_when_the_run_is_published(
        self, hub: HubServer, repo: str, spec: RunSpec, staged: dict[str, bytes], finalizer: Client, redis_url: str
    ) -> None:
        finalizer.call(reserve, spec)

        finalizer.call(finalize, redis_url, spec.run_id)
        finalizer.call(reserve, spec)

        assert set(hub.branches(repo)) == {"main"}

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
    def test_foreign_data_is_refused(
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

        assert RunSpec.from_json(spec_on_branch(hub, repo, spec)) == spec
        assert outputs(hub, repo) == {"README.md"}

    def test_a_published_run_may_be_reserved_again(
        self, hub: HubServer, repo: str, spec: RunSpec, staged: dict[str, bytes], finalizer: Client, redis_url: str
    ) -> None:
        finalizer.call(finalize, redis_url, spec.run_id)
        files, commits = outputs(hub, repo), titles(hub, repo)

        finalizer.call(reserve, spec)

        assert (outputs(hub, repo), titles(hub, repo)) == (files, commits)

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
