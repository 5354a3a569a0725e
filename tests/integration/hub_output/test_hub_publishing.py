"""Outputs on the Hub: workers upload the bytes, and the finalizer publishes them in one commit, never in two."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fleet.errors import ShardError, TransientError, UsageError
from fleet.ledger import Ledger, Publication
from fleet.spec import RunSpec
from fleet.storage.output import CARD_PATH, MANIFEST_PATH
from hubserver import HubServer
from producer.finalizer.publish import NotReady
from support.hub_fleet import (
    Client,
    finalize,
    noise,
    outputs,
    publish_as_other_run,
    published,
    stage,
    titles,
)
from support.hub_runs import A
from support.waiting import wait_until


def finalize_from_threads(redis_url: str, run_id: str, threads: int) -> list[Publication | NotReady]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda _: finalize(redis_url, run_id), range(threads)))


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


class TestStaging:
    def test_staged_files_are_in_no_commit(self, hub: HubServer, repo: str, staged: dict[str, bytes]) -> None:
        assert titles(hub, repo) == ["initial commit"]
        assert outputs(hub, repo) == set()

    def test_a_small_file_is_a_blob_too(self, hub: HubServer, spec: RunSpec, worker: Client, tmp_path: Path) -> None:
        files = (noise(tmp_path / "data", 700), noise(tmp_path / "scores", 300))

        worker.call(stage, spec, A, files)

        assert [request.path for request in hub.requests if "/commit/" in request.path] == []
        assert any("/info/lfs/" in request.path or "/xet-write-token/" in request.path for request in hub.requests)

    def test_a_token_without_rights_is_told_so(
        self, hub: HubServer, spec: RunSpec, worker: Client, tmp_path: Path
    ) -> None:
        files = (noise(tmp_path / "data", 700), noise(tmp_path / "scores", 300))

        with pytest.raises(ShardError, match="Give HF_TOKEN the rights"):
            worker.call(stage, spec, A, files, token=hub.token("reader", write=False))
