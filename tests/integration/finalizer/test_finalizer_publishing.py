"""A finished run is published once and whole, and never if one of its files is damaged or the run is cancelled."""

from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest

from shardsift.fleet.ledger import Ledger, Publication
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.spec import Shard
from shardsift.fleet.storage.manifest import read_manifest
from shardsift.fleet.storage.output import MANIFEST_PATH, PICTURE_PATH
from shardsift.producer.finalizer import Publisher
from shardsift.producer.publishing.publish import NotReady, finalize_run
from support.finalizer_runs import A, B, C, FinalizerRun
from support.outputs import Published


class TestFinalizing:
    @pytest.mark.parametrize(
        ("done", "then", "reason"),
        [
            ([A], lambda run: None, "2 shards not done yet"),
            ([A, B, C], lambda run: run.lose("complete"), "enqueueing was interrupted; run the same command again"),
            ([A], lambda run: run.ledger.cancel(run.run_id), "it is cancelled; `producer retry` resumes it"),
            ([], lambda run: run.fail(A, B, C), "no shard is done"),
        ],
        ids=["open", "half enqueued", "cancelled", "failed"],
    )
    def test_a_run_that_is_not_ready_is_not_published_without_its_failed_shards_either(
        self, run: FinalizerRun, done: list[Shard], then: Callable[[FinalizerRun], object], reason: str
    ) -> None:
        run.do(*done)
        then(run)

        assert run.finalize(without_failed=True) == NotReady(reason=reason)
        assert run.visible() == {}

    def test_a_finished_run_is_published_once_and_dead_workers_checkpoints_are_removed(self, run: FinalizerRun) -> None:
        run.do(A, B, C)
        run.output.store_checkpoint(A.name, "0", b"scores")

        publication = run.finalize()

        assert publication == Publication(uri=str(run.out), commit="", shards=3)
        assert run.publication == publication
        paths = {path for shard in (A, B, C) for path in (shard.data_path, shard.scores_path)}
        assert run.visible().keys() - {PICTURE_PATH} == {*paths, MANIFEST_PATH, "README.md"}
        assert not (run.out / ".shardsift" / run.run_id / "checkpoints").exists()

        (run.out / "README.md").write_text("mine")
        before = run.visible()
        assert run.finalize() == publication
        assert run.visible() == before

    def test_failed_shards_hold_a_run_back_unless_it_is_to_be_published_without_them(self, run: FinalizerRun) -> None:
        run.do(A, B)
        run.fail(C)

        outcome = run.finalize()

        assert isinstance(outcome, NotReady)
        assert outcome.reason.startswith("1 shard failed; `producer retry` them")
        assert run.visible() == {}

        publication = run.finalize(without_failed=True)

        assert publication == Publication(uri=str(run.out), commit="", shards=2)
        assert C.data_path not in run.visible()
        assert pq.read_table(run.out / MANIFEST_PATH).column("shard").to_pylist() == [A.name, B.name]
        read = read_manifest((run.out / MANIFEST_PATH).read_bytes())
        assert read is not None
        assert read.left_out == (C.name,)

    def test_a_damaged_file_goes_if_its_shard_fails_and_a_strangers_beside_it_stays(self, run: FinalizerRun) -> None:
        strangers = f"data/{B.name}"
        run.do(A, B, C)
        run.finalize()
        (run.out / B.data_path).write_bytes(b"PAR1")
        (run.out / strangers).write_bytes(b"notes")
        run.ledger.requeue(run.run_id, {B.name: "damaged"})
        run.fail(B)

        run.finalize(without_failed=True)

        assert {B.data_path, B.scores_path}.isdisjoint(run.visible())
        assert {A.data_path, C.data_path, C.scores_path, strangers} <= run.visible().keys()
        assert run.findings() == [f"{strangers} is not a file of this run"]

    def test_a_shard_that_succeeds_later_is_published_unasked(self, run: FinalizerRun, publisher: Publisher) -> None:
        run.do(A, B)
        run.fail(C)
        run.finalize(without_failed=True)
        before = {path: content for path, content in run.visible().items() if path.startswith(("data/", "scores/"))}
        run.ledger.retry(run.run_id)
        run.do(C)

        publisher.publish_ready()

        assert run.publication == Publication(uri=str(run.out), commit="", shards=3)
        assert before.items() <= run.visible().items()
        assert {C.data_path, C.scores_path} <= run.visible().keys()
        assert pq.read_table(run.out / MANIFEST_PATH).num_rows == 3

    @pytest.mark.parametrize("is_manifest_lost", [False, True])
    def test_an_edited_card_outlives_another_publication(self, run: FinalizerRun, is_manifest_lost: bool) -> None:
        run.do(A, B)
        run.fail(C)
        run.finalize(without_failed=True)
        (run.out / "README.md").write_text("mine")
        if is_manifest_lost:
            (run.out / MANIFEST_PATH).unlink()
        run.ledger.retry(run.run_id)
        run.do(C)

        publication = run.finalize()

        assert publication == Publication(uri=str(run.out), commit="", shards=3)
        assert (run.out / "README.md").read_text() == "mine"
        assert run.findings() == ["README.md has changed since it was published"]

    @pytest.mark.parametrize("damage", [Published.delete, Published.flip])
    def test_a_shard_whose_staged_file_is_damaged_is_done_again_alone_and_then_all_is_published(
        self, run: FinalizerRun, damage: Callable[[Published, str], None], caplog: pytest.LogCaptureFixture
    ) -> None:
        run.do(A, B, C)
        receipt = list(run.ledger.receipts(run.run_id))[1]
        damage(Published(str(run.out)), receipt.data.staged_path)

        outcome = run.finalize()

        assert isinstance(outcome, NotReady)
        assert outcome.reason.startswith("1 shard queued again: ")
        assert f"shard {B.name} is scored again: " in caplog.text
        assert run.visible() == {}
        assert run.ledger.take_due(run.run_id, room=9).again == [B.name]
        run.do(B)
        assert run.finalize() == Publication(uri=str(run.out), commit="", shards=3)
        assert run.findings() == []

    def test_a_finalizer_frozen_while_shards_were_done_again_leaves_them_to_the_next(self, run: FinalizerRun) -> None:
        run.do(A, B, C)
        again = (lambda: run.ledger.retry(run.run_id, changed=[A.name, B.name, C.name]), lambda: run.do(A, B, C))
        frozen = Meanwhile(run.ledger, *again)

        outcome = finalize_run(frozen, run.run_id, without_failed=False)

        assert isinstance(outcome, NotReady)
        assert run.publication is None
        run.finalize()
        assert run.publication == Publication(uri=str(run.out), commit="", shards=3)
        assert [path for path in Published(str(run.out)).hidden_paths() if "/staged/" in path] == []

    def test_a_run_that_was_cancelled_while_it_was_published_is_published(self, run: FinalizerRun) -> None:
        run.do(A, B, C)

        finalize_run(Meanwhile(run.ledger, lambda: run.ledger.cancel(run.run_id)), run.run_id, without_failed=False)

        assert run.publication
        assert not run.ledger.state(run.run_id).cancelled

    def test_a_cancelled_publication_of_a_dead_finalizer_is_found(self, run: FinalizerRun, settings: Settings) -> None:
        run.do(A, B, C)
        with pytest.raises(KeyboardInterrupt):
            finalize_run(Meanwhile(run.ledger, die), run.run_id, without_failed=False)
        run.ledger.cancel(run.run_id)

        Publisher(run.ledger, settings).publish_ready()

        assert run.publication
        assert not run.ledger.state(run.run_id).cancelled


class Meanwhile(Ledger):
    """A ledger that calls a function between a publication and its record."""

    def __init__(self, ledger: Ledger, *happenings: Callable[[], object]) -> None:
        super().__init__(ledger.redis, Settings())
        self._happenings = happenings

    def record_publication(self, *arguments: Any, **options: Any) -> bool:
        for happen in self._happenings:
            happen()
        return super().record_publication(*arguments, **options)


def die() -> None:
    raise KeyboardInterrupt
