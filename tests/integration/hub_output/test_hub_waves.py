"""A run that takes longer than the Hub keeps blobs saves its finished shards on a branch until it publishes them."""

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from shardsift.fleet.errors import TransientError
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.storage import hub
from shardsift.fleet.storage.output import CARD_PATH, MANIFEST_PATH
from shardsift.producer.finalizer import Publisher
from shardsift.producer.publishing.publish import NotReady
from support.hub_fleet import Client
from support.hub_runs import SHARDS, A, B, C, D, HubRun, data_of, look
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("enqueued")


class TestWaves:
    def test_a_wave_is_a_commit_on_a_branch_that_readers_do_not_see(self, half: HubRun) -> None:
        said = half.look(2)

        (wave,) = half.waves()
        (document,) = wave - data_of(wave)
        assert said == NotReady(reason="2 shards not done yet")
        assert data_of(wave) == half.content.keys()
        assert document.startswith(f".shardsift/{half.run_id}/receipts/")
        assert half.has(half.content, revision=half.branch)
        assert half.titles() == ["initial commit"]
        assert half.outputs() == set()
        assert not half.output.is_published()

    @pytest.mark.parametrize("state", ["open", "failed", "cancelled"])
    def test_shards_are_saved_however_the_run_stands(self, half: HubRun, state: str) -> None:
        if state == "failed":
            half.fail(C, D)
        elif state == "cancelled":
            half.ledger.cancel(half.run_id)

        settings = Settings(redis_url=half.redis_url, wave_shards=2, only_run=half.run_id)
        Publisher(half.ledger, settings).publish_ready()

        assert [data_of(wave) for wave in half.waves()] == [half.content.keys()]

    def test_a_run_that_ends_before_its_first_wave_makes_no_branch(self, half: HubRun) -> None:
        half.hub.forget_requests()
        half.look(100)
        asked_while_it_ran = list(half.hub.requests)
        half.score(C, D)

        half.look(100)

        assert asked_while_it_ran == []
        assert half.titles() == [f"Publish run {half.run_id}", "initial commit"]
        assert [request for request in half.hub.requests if "/branch/" in request.path] == []

    def test_what_is_saved_is_not_saved_again(self, half: HubRun) -> None:
        half.look(2)
        half.look(2)
        third = half.score(C)

        half.look(1)

        assert [data_of(wave) for wave in half.waves()] == [half.content.keys() - third.keys(), third.keys()]
        assert [receipt.shard for receipt in half.saved()] == [A.name, B.name, C.name]

    def test_finalizers_that_race_make_one_wave(self, half: HubRun) -> None:
        # So slow that all have looked before the first commit.
        half.hub.fault("/commit/", status=None, delay_seconds=0.5, times=2)

        with ThreadPoolExecutor(3) as finalizers:
            list(finalizers.map(half.look, [2] * 3))

        assert len(half.waves()) == 1
        assert 412 in half.commit_statuses()

    @pytest.mark.parametrize(
        ("step", "fault"),
        [
            *product(("/refs", "/paths-info/", "/branch/", "/commit/"), ({"status": 412}, {"status": 503})),
            *product(("/branch/", "/commit/"), ({"drop": True}, {"drop_after": True})),
        ],
    )
    def test_a_hub_in_trouble_is_asked_later_for_one_wave(self, half: HubRun, step: str, fault: dict[str, Any]) -> None:
        half.hub.fault(step, **fault)

        for _ in range(2):
            half.look(2)

        assert [data_of(wave) for wave in half.waves()] == [half.content.keys()]
        assert half.titles() == ["initial commit"]

    @pytest.mark.parametrize(
        ("method", "step"),
        [
            ("POST", "/commit/shardsift"),
            ("POST", "/commit/main"),
            *(
                pytest.param(method, step, marks=pytest.mark.faults)
                for method, step in [
                    ("POST", "/branch/"),
                    ("DELETE", "/branch/"),
                    ("POST", "/validate-yaml"),  # the card's, before the manifest is uploaded
                    ("POST", "/preupload/main"),
                    (None, "/info/lfs/objects/batch|/xet-write-token/"),
                    (None, "^/lfs/[0-9a-f]|/shards"),  # the last request of an upload
                ]
            ),
        ],
    )
    def test_another_finalizer_goes_on_from_any_step(self, half: HubRun, step: str, method: str | None) -> None:
        half.hub.fault(step, method=method, status=None, delay_seconds=0.5)
        victim = Client(half.hub, half.folder / "victim-home", "victim")

        def look_as_the_victim() -> None:
            looking = victim.start(look, half.redis_url, half.run_id, 2)
            wait_until(lambda: half.hub.faults_left == 0 or looking.done(), description="the victim comes to that step")
            if half.hub.faults_left == 0:
                victim.kill()
            looking.exception()

        look_as_the_victim()
        half.score(C, D)
        if half.hub.faults_left:
            look_as_the_victim()
        wait_until(
            lambda: any(method in (None, r.method) and re.search(step, r.path) for r in half.hub.requests),
            description="the Hub has done what the victim asked for",
        )
        victim.close()

        half.look(2)

        half.check_published_once()

    @pytest.mark.parametrize("fault", [{"status": 503}, {"drop": True}, {"drop_after": True}])
    def test_a_branch_that_could_not_be_removed_is_removed_later(self, half: HubRun, fault: dict[str, Any]) -> None:
        half.look(2)
        half.score(C, D)
        half.hub.fault("/branch/", method="DELETE", **fault)

        half.look(2)

        half.check_published_once()

    def test_a_wave_that_another_finalizers_publication_overtook_leaves_no_branch(self, half: HubRun) -> None:
        half.hub.fault("/branch/", method="POST", status=None, delay_seconds=2)
        looking = half.finalizer.start(half.look, 2)
        wait_until(lambda: half.hub.faults_left == 0, description="the slow one makes the branch")

        half.score(C, D)
        half.look(2)
        looking.result()

        half.check_published_once()

    def test_a_blob_that_the_hub_dropped_before_the_publication_costs_its_shard_alone(self, run: HubRun) -> None:
        run.score(B)
        run.hub.forget_unreferenced_blobs()
        run.score(A, C, D)

        said = run.look(100)
        run.hub.forget_unreferenced_blobs()  # blobs that still exist are saved from now on
        again = run.ledger.take_due(run.run_id, room=0).again
        run.score(B)
        run.look(100)

        assert isinstance(said, NotReady)
        assert said.reason.startswith("1 shard queued again: ")
        assert again == [B.name]
        run.check_published_once()

    @pytest.mark.parametrize("place", ["wave", "publication"])
    def test_a_hub_that_asks_to_wait_is_not_asked_before(self, run: HubRun, place: str) -> None:
        run.score(A, B, *((C, D) if place == "publication" else ()))
        run.hub.fault("/commit/", method="POST", status=429, headers={"Retry-After": "3600"})
        with suppress(TransientError):
            run.look(2)
        run.hub.forget_requests()

        said = run.look(2)

        assert said is None
        assert "the Hub answered 429" in run.ledger.state(run.run_id).publish_error
        assert run.hub.requests == []

    @pytest.mark.parametrize("fault", [{"status": 429, "headers": {"Retry-After": "1"}}, {"drop_after": True}])
    def test_a_large_run_is_published_in_parts_the_manifest_last_and_goes_on_where_it_ended(
        self, run: HubRun, fault: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hub, "SHARDS_A_COMMIT", 1)  # as if one shard were as many as a commit may have
        content = run.score(*SHARDS)
        run.hub.fault("/commit/main", status=None)  # the first part
        run.hub.fault("/commit/main", **fault)
        with pytest.raises(TransientError):
            run.look(100)
        begun = run.outputs()

        wait_until(lambda: run.look(100), description="it goes on")

        assert begun < content.keys()
        assert run.titles() == [f"Publish run {run.run_id}", *3 * [f"A part of run {run.run_id}"], "initial commit"]
        assert run.has(content)
        assert run.outputs() == {*content, MANIFEST_PATH, CARD_PATH}
        assert run.branches() == {"main"}

    def test_a_shard_that_is_scored_again_replaces_what_was_saved(self, half: HubRun) -> None:
        half.look(2)
        half.ledger.retry(half.run_id, changed=[A.name, B.name])
        half.score(A)

        half.look(1)

        assert half.saved()[0] == next(half.ledger.receipts(half.run_id))
        assert [receipt.shard for receipt in half.saved()] == [A.name, B.name]
        assert half.has(half.content, revision=half.branch)
