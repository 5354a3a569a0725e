"""If publishing fails, the status says why. What cannot succeed is not tried again until a person asks."""

from collections.abc import Callable
from pathlib import Path

import pytest
from celery import Celery

from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.message import FINALIZE_QUEUE
from fleet.settings import Settings
from fleet.spec import RunSpec
from fleet.storage.output import MANIFEST_PATH
from producer.finalizer.app import finalize_run_task
from producer.finalizer.sweep import Sweeper
from producer.progress import progress_line
from producer.status import ExitCode, run_status
from producer.status.advice import what_next
from support.finalizer_runs import A, B, C, do, publish_as_other_run


class TestPublishingThatCannotSucceed:
    @pytest.fixture
    def asked(self, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
        """The answer of a finalizer that is asked to publish a run."""
        monkeypatch.setenv("REDIS_URL", redis_url)
        return lambda run_id: str(finalize_run_task.run(run_id=run_id))

    def test_it_is_said_and_not_tried_again(
        self,
        ledger: Ledger,
        spec: RunSpec,
        out: Path,
        asked: Callable[[str], str],
        app: Celery,
        settings: Settings,
    ) -> None:
        do(ledger, spec, A, B, C)
        publish_as_other_run(out)

        with pytest.raises(UsageError, match="another run, other"):
            asked(spec.run_id)
        Sweeper(app, ledger, settings).sweep()

        status = run_status(ledger, spec.run_id)
        assert (status.is_over, status.exit_code) == (True, ExitCode.FAILED)
        assert any("now holds the data of another run, other" in line for line in what_next(status))
        assert ledger.redis.llen(FINALIZE_QUEUE) == 0
        assert asked(spec.run_id).startswith("not tried: ")

    @pytest.mark.parametrize("command", [Ledger.clear_publish_error, Ledger.retry])
    def test_it_is_tried_again_when_a_person_asks(
        self,
        ledger: Ledger,
        spec: RunSpec,
        out: Path,
        asked: Callable[[str], str],
        command: Callable[[Ledger, str], object],
    ) -> None:
        do(ledger, spec, A, B, C)
        publish_as_other_run(out)
        with pytest.raises(UsageError):
            asked(spec.run_id)
        (out / MANIFEST_PATH).unlink()

        command(ledger, spec.run_id)

        assert asked(spec.run_id).startswith("published 3 shards")
        assert run_status(ledger, spec.run_id).exit_code == ExitCode.DONE

    def test_what_may_pass_is_tried_again_and_the_reason_is_shown_meanwhile(
        self, ledger: Ledger, spec: RunSpec, out: Path, asked: Callable[[str], str], app: Celery, settings: Settings
    ) -> None:
        do(ledger, spec, A, B, C)
        ledger.record_publish_error(spec.run_id, "the Hub answered 503")

        Sweeper(app, ledger, settings).sweep()

        status = run_status(ledger, spec.run_id)
        assert (status.is_over, status.exit_code) == (False, ExitCode.RUNNING)
        assert "the Hub answered 503" in progress_line(status)
        assert ledger.redis.llen(FINALIZE_QUEUE) == 1
