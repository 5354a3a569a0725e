"""If publishing fails, the status says why. What cannot succeed is not tried again until a person asks."""

from collections.abc import Callable

import pytest

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.presence.announcements import FinalizerState, announce_finalizer
from shardsift.fleet.storage.output import MANIFEST_PATH
from shardsift.producer.finalizer import Publisher
from shardsift.producer.status import ExitCode, run_status
from shardsift.producer.status.advice import what_next
from shardsift.producer.status.watch import progress_line
from support.finalizer_runs import A, B, C, FinalizerRun, publish_as_other_run
from support.waiting import wait_until


class TestPublishingThatCannotSucceed:
    @pytest.mark.parametrize("command", [Ledger.clear_publish_error, Ledger.retry])
    def test_a_publication_that_cannot_succeed_is_said_and_not_tried_again_until_a_person_asks(
        self, run: FinalizerRun, publisher: Publisher, command: Callable[[Ledger, str], object]
    ) -> None:
        run.do(A, B, C)
        publish_as_other_run(run.out)
        before = run.visible()

        publisher.publish_ready()
        left_alone = run.visible()
        (run.out / MANIFEST_PATH).unlink()
        publisher.publish_ready()

        status = run_status(run.ledger, run.run_id)
        assert (status.is_over, status.exit_code) == (True, ExitCode.FAILED)
        assert any("now holds the data of another run, other" in line for line in what_next(status))
        assert left_alone == before
        assert run.publication is None

        command(run.ledger, run.run_id)
        publisher.publish_ready()

        assert run_status(run.ledger, run.run_id).exit_code == ExitCode.DONE

    def test_a_publication_that_may_succeed_later_is_tried_again(self, run: FinalizerRun, publisher: Publisher) -> None:
        run.do(A, B, C)
        announce_finalizer(run.ledger.redis, FinalizerState(name="box/13"))
        (run.out / "data").write_text("in the way")

        publisher.publish_ready()

        status = run_status(run.ledger, run.run_id)
        assert (status.is_over, status.exit_code) == (False, ExitCode.RUNNING)
        assert progress_line(status).startswith("publishing: Publishing has not succeeded yet, and is tried again: ")
        (run.out / "data").unlink()
        wait_until(
            lambda: publisher.publish_ready() or run.publication,
            description="it is tried again",
            seconds=10,
        )
