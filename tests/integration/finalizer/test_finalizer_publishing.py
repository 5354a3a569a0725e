"""A finished run is published once and whole, and never if one of its files is damaged or the run is cancelled."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fleet.errors import UsageError
from fleet.ledger import Ledger, Publication
from fleet.process.settings import Settings
from fleet.run.spec import RunSpec
from fleet.storage.manifest import read_manifest
from fleet.storage.opening import open_output
from fleet.storage.output import MANIFEST_PATH
from producer.finalizer import Publisher
from producer.publishing.publish import NotReady, finalize_run
from support.finalizer_runs import A, B, C, do, fail, publish_as_other_run
from support.outputs import Published, visible


class TestFinalizing:
    def test_a_run_with_open_shards_is_not_ready(self, ledger: Ledger, spec: RunSpec, out: Path) -> None:
        do(ledger, spec, A)

        for without_failed in (False, True):
            outcome = finalize_run(ledger, spec.run_id, without_failed=without_failed)
            assert outcome == NotReady(reason="2 shards not done yet")
        ledger.cancel(spec.run_id)
        cancelled = NotReady(reason="it is cancelled; `producer retry` resumes it")
        assert finalize_run(ledger, spec.run_id, without_failed=True) == cancelled
        assert visible(out) == {}

    @pytest.mark.parametrize("without_failed", [True, False])
    def test_a_run_whose_enqueue_died_midway_is_not_published(
        self, ledger: Ledger, spec: RunSpec, out: Path, without_failed: bool
    ) -> None:
        do(ledger, spec, A, B, C)
        ledger.redis.hdel(f"shardsift:run:{spec.run_id}", "complete")

        outcome = finalize_run(ledger, spec.run_id, without_failed=without_failed)
        assert outcome == NotReady(reason="enqueueing was interrupted; run the same command again")
        assert visible(out) == {}

        ledger.create_run(spec, [A, B, C], now=2.0)
        assert isinstance(finalize_run(ledger, spec.run_id, without_failed=without_failed), Publication)

    def test_a_run_whose_shards_are_done_is_published_once_and_dead_workers_checkpoints_are_removed(
        self, ledger: Ledger, spec: RunSpec, out: Path
    ) -> None:
        do(ledger, spec, A, B, C)
        open_output(spec.output_uri, spec.run_id).store_checkpoint(A.name, "0", b"scores")

        publication = finalize_run(ledger, spec.run_id, without_failed=False)

        assert publication == Publication(uri=str(out), commit="", shards=3)
        assert ledger.publication(spec.run_id) == publication
        paths = {path for shard in (A, B, C) for path in (shard.data_path, shard.scores_path)}
        assert visible(out).keys() == {*paths, MANIFEST_PATH, "README.md"}
        assert not (out / ".shardsift" / spec.run_id / "checkpoints").exists()

        (out / "README.md").write_text("mine")
        before = visible(out)
        assert finalize_run(ledger, spec.run_id, without_failed=False) == publication
        assert visible(out) == before

    def test_a_publication_that_the_ledger_missed_is_recorded(self, ledger: Ledger, spec: RunSpec) -> None:
        do(ledger, spec, A, B, C)
        publication = finalize_run(ledger, spec.run_id, without_failed=False)
        ledger.redis.hdel(f"shardsift:run:{spec.run_id}", "published")
        ledger.record_publish_error(spec.run_id, "Redis went away")

        finalize_run(ledger, spec.run_id, without_failed=False)

        assert ledger.publication(spec.run_id) == publication
        assert ledger.publish_error(spec.run_id) is None

    def test_failed_shards_hold_it_back_unless_it_is_to_be_published_without_them(
        self, ledger: Ledger, spec: RunSpec, out: Path
    ) -> None:
        do(ledger, spec, A, B)
        fail(ledger, spec, C)

        outcome = finalize_run(ledger, spec.run_id, without_failed=False)

        assert isinstance(outcome, NotReady)
        assert outcome.reason.startswith("1 shard failed; `producer retry` them")
        assert visible(out) == {}

        publication = finalize_run(ledger, spec.run_id, without_failed=True)

        assert publication == Publication(uri=str(out), commit="", shards=2)
        assert C.data_path not in visible(out)
        assert pq.read_table(out / MANIFEST_PATH).column("shard").to_pylist() == [A.name, B.name]
        read = read_manifest((out / MANIFEST_PATH).read_bytes())
        assert read is not None
        assert read.left_out == (C.name,)

    def test_a_run_without_any_done_shard_is_never_published(self, ledger: Ledger, spec: RunSpec, out: Path) -> None:
        fail(ledger, spec, A, B, C)

        assert finalize_run(ledger, spec.run_id, without_failed=True) == NotReady(reason="no shard is done")
        assert visible(out) == {}

    def test_a_shard_that_succeeds_later_is_in_a_second_publication_that_nobody_asks_for(
        self, ledger: Ledger, spec: RunSpec, out: Path, publisher: Publisher
    ) -> None:
        do(ledger, spec, A, B)
        fail(ledger, spec, C)
        finalize_run(ledger, spec.run_id, without_failed=True)
        before = visible(out)
        ledger.retry(spec.run_id)
        do(ledger, spec, C)

        publisher.publish_ready()

        assert ledger.publication(spec.run_id) == Publication(uri=str(out), commit="", shards=3)
        after = visible(out)
        assert {A.data_path, B.data_path, C.data_path, C.scores_path} <= after.keys()
        assert {path: after[path] for path in before if path.startswith(("data", "scores"))} == {
            path: content for path, content in before.items() if path.startswith(("data", "scores"))
        }
        assert pq.read_table(out / MANIFEST_PATH).num_rows == 3

    @pytest.mark.parametrize("is_manifest_lost", [False, True])
    def test_an_edited_card_stays_when_the_run_is_published_again(
        self, ledger: Ledger, spec: RunSpec, out: Path, is_manifest_lost: bool
    ) -> None:
        do(ledger, spec, A, B)
        fail(ledger, spec, C)
        finalize_run(ledger, spec.run_id, without_failed=True)
        (out / "README.md").write_text("mine")
        if is_manifest_lost:
            (out / MANIFEST_PATH).unlink()
        ledger.retry(spec.run_id)
        do(ledger, spec, C)

        publication = finalize_run(ledger, spec.run_id, without_failed=False)

        assert publication == Publication(uri=str(out), commit="", shards=3)
        assert (out / "README.md").read_text() == "mine"
        found = open_output(str(out), spec.run_id).inspect(list(ledger.receipts(spec.run_id)), hashes=True)
        assert [str(finding) for finding in found] == ["README.md has changed since it was published"]

    def test_what_another_run_published_is_left_alone(self, ledger: Ledger, spec: RunSpec, out: Path) -> None:
        do(ledger, spec, A, B, C)
        publish_as_other_run(out)
        before = visible(out)

        with pytest.raises(UsageError, match="now holds the data of another run, other"):
            finalize_run(ledger, spec.run_id, without_failed=False)

        assert visible(out) == before

    @pytest.mark.parametrize("damage", [Published.delete, Published.flip])
    def test_a_shard_whose_staged_file_is_damaged_is_done_again_alone_and_then_all_is_published(
        self,
        ledger: Ledger,
        spec: RunSpec,
        out: Path,
        damage: Callable[[Published, str], None],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        do(ledger, spec, A, B, C)
        receipt = list(ledger.receipts(spec.run_id))[1]
        damage(Published(str(out)), receipt.data.staged_path)

        outcome = finalize_run(ledger, spec.run_id, without_failed=False)

        assert outcome == NotReady(reason="1 shard queued again, since the stored files are lost or damaged")
        assert f"shard {B.name} is scored again: " in caplog.text
        assert visible(out) == {}
        assert ledger.take_due(spec.run_id, room=9).again == [B.name]
        do(ledger, spec, B)
        assert finalize_run(ledger, spec.run_id, without_failed=False) == Publication(uri=str(out), commit="", shards=3)
        assert open_output(spec.output_uri, spec.run_id).inspect(list(ledger.receipts(spec.run_id)), hashes=True) == []

    def test_a_disk_that_damages_whatever_it_stores_does_not_keep_the_run_busy(
        self, ledger: Ledger, spec: RunSpec, out: Path
    ) -> None:
        do(ledger, spec, A, B, C)
        for _ in range(3):
            receipt = list(ledger.receipts(spec.run_id))[1]
            Published(str(out)).flip(receipt.scores.staged_path)
            finalize_run(ledger, spec.run_id, without_failed=False)
            if not ledger.counts(spec.run_id).failed:
                do(ledger, spec, B)

        (failure,) = ledger.failures(spec.run_id)
        assert (failure.shard, ledger.counts(spec.run_id).open) == (B.name, 0)
        assert "has changed since it was written (its sha256 differs) (found 3 times)" in failure.error

    def test_a_finalizer_that_was_frozen_while_all_shards_were_done_again_leaves_them_to_the_next(
        self, ledger: Ledger, spec: RunSpec, out: Path
    ) -> None:
        do(ledger, spec, A, B, C)
        again = (lambda: ledger.retry(spec.run_id, done_too=True), lambda: do(ledger, spec, A, B, C))
        frozen = Meanwhile(ledger, *again)

        outcome = finalize_run(frozen, spec.run_id, without_failed=False)

        assert isinstance(outcome, NotReady)
        assert ledger.publication(spec.run_id) is None
        finalize_run(ledger, spec.run_id, without_failed=False)
        assert ledger.publication(spec.run_id) == Publication(uri=str(out), commit="", shards=3)
        assert [path for path in Published(str(out)).hidden_paths() if "/staged/" in path] == []

    def test_a_run_that_was_cancelled_is_not_published(self, ledger: Ledger, spec: RunSpec, out: Path) -> None:
        do(ledger, spec, A, B, C)
        ledger.cancel(spec.run_id)

        outcome = finalize_run(ledger, spec.run_id, without_failed=False)

        assert outcome == NotReady(reason="it is cancelled; `producer retry` resumes it")
        assert visible(out) == {}

    def test_a_run_that_was_cancelled_while_it_was_published_is_published(
        self, ledger: Ledger, spec: RunSpec, out: Path
    ) -> None:
        do(ledger, spec, A, B, C)

        finalize_run(Meanwhile(ledger, lambda: ledger.cancel(spec.run_id)), spec.run_id, without_failed=False)

        assert ledger.publication(spec.run_id)
        assert not ledger.is_cancelled(spec.run_id)

    def test_a_publication_whose_finalizer_died_before_a_cancellation_is_found_by_the_next(
        self, ledger: Ledger, spec: RunSpec, settings: Settings
    ) -> None:
        do(ledger, spec, A, B, C)
        with pytest.raises(KeyboardInterrupt):
            finalize_run(Meanwhile(ledger, die), spec.run_id, without_failed=False)
        ledger.cancel(spec.run_id)

        Publisher(ledger, settings).publish_ready()

        assert ledger.publication(spec.run_id)
        assert not ledger.is_cancelled(spec.run_id)


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
