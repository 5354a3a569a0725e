"""The status of a run, for people and for programs, is true and says what to do."""

import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from shardsift.fleet.ledger import Claim, Counts, Ledger, Publication
from shardsift.fleet.ledger.base import Keys
from shardsift.fleet.ledger.records import Steering
from shardsift.fleet.presence.announcements import (
    FinalizerState,
    MachineState,
    WorkerState,
    announce,
    announce_finalizer,
    announce_machine,
    withdraw_finalizer,
)
from shardsift.fleet.presence.demand import Wanted
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.receipt import AttemptReport, Histogram
from shardsift.fleet.run.spec import RunSpec, Shard
from shardsift.fleet.storage.folder import FolderOutput
from shardsift.fleet.storage.output import CARD_PATH
from shardsift.producer.publishing.publish import finalize_run, looked_at
from shardsift.producer.status import ExitCode, run_status
from shardsift.producer.status.advice import level, verdict, what_next
from shardsift.producer.status.screen import status_lines, status_screen, status_table
from shardsift.producer.status.watch import progress_line
from support.processes import call_command
from support.records import a_receipt, a_scoring_receipt, a_shard, a_spec, a_worker, stage_shard

A, B = a_shard("crawl/a"), a_shard("crawl/b")
SPEC = a_spec()
LOADING = a_worker(activity="loading", activity_seconds=35.0)
READY = a_worker(activity="ready", device="cpu", activity_seconds=5.0)
OTHER = replace(SPEC.scorings[0].model, name="org/other", revision="89ab")
MACHINE = MachineState(name="box/12", devices=("0", "1"), free=1, wanted=Wanted())
MINE = replace(SPEC.scorings[0].model, name="/my models/mine", revision="sha256-abc")
REPORT = AttemptReport(
    device="cpu",
    rows_per_second=117.6,
    rows_written=4,
    rows_kept=3,
    tokens=900,
    seconds={"device": 4.5, "input": 0.5, "write": 0.02},
    histograms={"score": Histogram(bins_per_unit=4, rows_by_bin={0: 1, 12: 3})},
)
START = "worker start --model HuggingFaceFW/fineweb-edu-classifier"
NO_WORKER = f"No worker serves this run. Start one: {START}"


def test_a_redis_that_is_full_is_told_and_not_that_nobody_is_there(ledger: Ledger) -> None:
    ledger.create_run(SPEC, [A, B], now=0)
    ledger.redis.config_set("maxmemory", 1)
    try:
        status = run_status(ledger, SPEC.run_id)
    finally:
        ledger.redis.config_set("maxmemory", 0)

    full = "Redis refuses to write (OOM). It is full (OOM): raise its maxmemory, or remove other data."
    assert verdict(status) == f"queued: {full}"
    assert level(status) == "doubtful"
    assert what_next(status) == [full]
    assert run_status(ledger, SPEC.run_id).no_writes == ""


@pytest.fixture
def run(ledger: Ledger) -> str:
    ledger.create_run(SPEC, [A, B], now=0)
    announce_finalizer(ledger.redis, FinalizerState(name="box/13"))
    return SPEC.run_id


@pytest.fixture
def claim(ledger: Ledger, run: str) -> Claim:
    return claimed(ledger, run)


def claimed(ledger: Ledger, run: str, shard: str = A.name, *, owner: str = "w1@host/7") -> Claim:
    claim = ledger.claim(run, shard, owner)
    assert isinstance(claim, Claim)
    return claim


def finish(ledger: Ledger, run: str, *shards: str) -> None:
    for name in shards:
        ledger.complete(claimed(ledger, run, name), a_receipt(run, a_shard(name)))


def let_pass(ledger: Ledger, run: str, seconds: int) -> None:
    """Move all recorded times of the run this far into the past."""
    key = f"shardsift:run:{run}"
    for field in ("started_ms", "advanced_ms", "queued_ms", "finished_ms"):
        if ledger.redis.hexists(key, field):
            ledger.redis.hincrby(key, field, -seconds * 1000)


class EndingLedger(Ledger):
    """A ledger of a run whose last shard is completed while its status is read."""

    def counts(self, run_id: str) -> Counts:
        for shard in self.running_shards(run_id):
            self.complete(claimed(self, run_id, shard.name), a_receipt(run_id, A))
        return super().counts(run_id)


def test_a_run_that_ends_while_its_status_is_read_shows_no_shard_as_running(ledger: Ledger, run: str) -> None:
    claimed(ledger, run, A.name)
    finish(ledger, run, B.name)

    status = run_status(EndingLedger(ledger.redis, Settings()), run)

    assert (status.counts.done, status.counts.running, status.running) == (2, 0, ())


class TestWorkers:
    """The status of a run depends on the workers that serve it."""

    @pytest.mark.parametrize(
        ("changes", "word", "lines"),
        [
            ([], "queued", [NO_WORKER]),
            ([LOADING], "loading", ["Loading the model (1 worker, 35 s)."]),
            ([A, READY], "running", []),  # between two shards
            (
                [A, replace(READY, activity="stopping"), replace(READY, name="w2@host/8", queue="score.other")],
                "stalled",
                [NO_WORKER, "Workers of this fleet that serve other models or dtypes: 1."],
            ),
            (
                [A, replace(MACHINE, name="full/4", free=0), MACHINE],
                "queued",
                ["A worker of box/12 is free for this run, and not started yet."],
            ),
            (
                [replace(MACHINE, free=0)],
                "queued",
                ["No worker of box/12 is free yet."],
            ),
            ([replace(MACHINE, wanted=Wanted(models=(OTHER,)))], "queued", [NO_WORKER]),
            ([replace(MACHINE, wanted=Wanted(dtype="bfloat16"))], "queued", [NO_WORKER]),
            (
                [replace(MACHINE, avoids={SPEC.queue: "CUDA out of memory."})],
                "queued",
                [
                    "No worker of box/12 could serve it: CUDA out of memory. Tried again after ten minutes, or when "
                    "`worker start` is restarted.",
                    NO_WORKER,
                ],
            ),
            (
                [replace(READY, activity="busy", run_id="another.run")],
                "queued",
                ["All its workers are busy with other runs: another.run."],
            ),
            ([A, B], "publishing", []),
            (["cancel"], "cancelled", [f"Take it up again: producer retry {SPEC.run_id}"]),
        ],
    )
    def test_what_a_run_waits_for_is_said_with_the_command(
        self, ledger: Ledger, run: str, changes: list[object], word: str, lines: list[str]
    ) -> None:
        for change in changes:
            match change:
                case WorkerState():
                    announce(ledger.redis, change)
                case MachineState():
                    announce_machine(ledger.redis, change)
                case Shard():
                    finish(ledger, run, change.name)
                case _:
                    ledger.cancel(run)

        status = run_status(ledger, run)

        assert (status.word, what_next(status)) == (word, lines)
        assert status.exit_code == (ExitCode.CANCELLED if word == "cancelled" else ExitCode.RUNNING)
        assert status.is_over == (word == "cancelled")

    @pytest.mark.parametrize(("revision", "is_told"), [("sha256-abd", True), ("sha256-abc", False)])
    def test_a_model_folder_that_is_another_one_on_a_machine_is_named_with_what_helps(
        self, ledger: Ledger, revision: str, is_told: bool
    ) -> None:
        spec = a_spec(model=MINE)
        ledger.create_run(spec, [A], now=0)
        wanted = Wanted(models=(replace(MINE, revision=revision),), dtype="bfloat16")
        announce_machine(ledger.redis, replace(MACHINE, wanted=wanted))

        status = run_status(ledger, spec.run_id)

        told = (
            "The model /my models/mine on box/12 is not as it was when this run was enqueued. Restore its files if they have "
            "changed and restart that `worker start`, or cancel this run and enqueue it again."
        )
        assert (told in what_next(status)) == verdict(status).startswith(f"queued: {told}") == is_told
        assert "No worker serves this run. Start one: worker start --model '/my models/mine'" in what_next(status)

    def test_a_cancelled_run_is_not_said_to_be_published_later(self, ledger: Ledger, run: str) -> None:
        finish(ledger, run, A.name)
        ledger.fail(claimed(ledger, run, B.name), "no column text", "")
        resumed = f"Take it up again: producer retry {run}"
        for is_permanent in (False, True):
            ledger.record_publish_error(run, "The Hub answered 503.", is_permanent=is_permanent)
            ledger.cancel(run)

            lines = what_next(run_status(ledger, run))

            assert resumed in lines
            assert not [line for line in lines if "producer finalize" in line or "is tried again" in line]

    def test_a_cancelled_run_is_not_published_by_finalize(self, ledger: Ledger, run: str, redis_url: str) -> None:
        finish(ledger, run, A.name)
        ledger.cancel(run)

        done = call_command("producer", "finalize", run, environment={"REDIS_URL": redis_url})

        assert (done.returncode, done.stderr) == (4, "Not published: it is cancelled; `producer retry` resumes it.\n")

    def test_a_run_that_nothing_goes_on_with_names_the_same_command(self, ledger: Ledger, run: str) -> None:
        announce(ledger.redis, replace(READY, only_run="another"))  # of a `producer run` beside it
        announce_machine(ledger.redis, replace(MACHINE, only_run="another"))
        before_any_worker = run_status(ledger, run, is_of_this_machine=True)
        finish(ledger, run, A.name)
        half = a_spec(input_revision="2")
        ledger.add_shards(half, [A], now=0)

        stopped = run_status(ledger, run, is_of_this_machine=True)
        interrupted = run_status(ledger, half.run_id)

        assert (before_any_worker.word, stopped.word, interrupted.word) == ("stopped", "stopped", "half enqueued")
        assert what_next(stopped) == [
            "No worker serves this run. Run the command that started it again: it goes on where it stopped."
        ]
        assert what_next(interrupted)[0] == "Enqueueing has not finished. If its command has ended, run it again."

    def test_a_notebook_shows_the_screen_as_text(self, ledger: Ledger, run: str) -> None:
        status = run_status(ledger, run)

        assert status._repr_html_() == f"<pre>{str(status).replace('<', '&lt;')}</pre>"
        assert status_screen(status)[0] == f"queued: {NO_WORKER}"
        assert status._repr_html_().count(START) == 1

    def test_a_run_whose_workers_process_is_replaced_is_loading_and_wants_no_other_worker(
        self, ledger: Ledger, claim: Claim
    ) -> None:
        ledger.renew(claim, rows=5)
        ledger.report_crash(claim.run_id, A.name, "w1@host/7", "killed by signal 9")
        let_pass(ledger, claim.run_id, 60)
        announce(ledger.redis, LOADING)

        status = run_status(ledger, claim.run_id)

        assert status.word == "loading"
        assert not any("worker start" in line for line in what_next(status))

    def test_a_run_of_which_no_worker_is_seen_has_no_time_left_and_says_when_its_leases_end(
        self, ledger: Ledger, run: str
    ) -> None:
        """The workers may be gone, frozen or cut off, or Redis may have lost what they announced: the lease is known."""
        finish(ledger, run, A.name)
        ledger.renew(claimed(ledger, run, B.name), rows=4)

        status = run_status(ledger, run)

        assert status.advances
        assert (status.word, status.remaining) == ("stalled", None)
        assert f"         w1@host/7: 4 rows of {B.name}" in status_lines(status)
        assert re.fullmatch(
            rf"stalled: No worker for this run is seen; the lease ends in \d+ s\. Start one: {START}", verdict(status)
        )
        assert verdict(run_status(ledger, run, is_of_this_machine=True)).startswith(
            "stopped: No worker for this run is seen; the lease ends in "
        )

    @pytest.mark.parametrize("only_run", ["another-run", None])
    def test_a_run_without_a_finalizer_says_so(self, ledger: Ledger, run: str, only_run: str | None) -> None:
        if only_run:
            announce_finalizer(ledger.redis, FinalizerState(name="box/14", only_run=only_run))
        withdraw_finalizer(ledger.redis, "box/13")
        finish(ledger, run, A.name, B.name)

        status = run_status(ledger, run)
        of_this_machine = run_status(ledger, run, is_of_this_machine=True)
        ledger.record_publish_error(run, "The Hub answered 503.", is_permanent=False, retry_after_seconds=60)
        after_an_error = run_status(ledger, run)

        assert status.word == of_this_machine.word == "publishing"
        said = (
            "No finalizer is running: no finished run is published, and no lost shard is sent again. "
            "Start one: producer finalizer"
        )
        assert what_next(status) == [said]
        assert verdict(status) == progress_line(status) == verdict(after_an_error) == f"publishing: {said}"
        assert "publishing, no finalizer" in list(status_table([status]).columns[1].cells)
        assert what_next(of_this_machine) == [
            "No finalizer is running, so nothing is published. Run the command that started it again: it goes on."
        ]

    def test_a_missing_finalizer_leaves_the_limit_of_the_cost_unwatched(self, ledger: Ledger, run: str) -> None:
        withdraw_finalizer(ledger.redis, "box/13")
        ledger.steer(run, Steering(max_cost=2.0, price_per_gpu_hour=1.0))

        assert "--max-cost pauses no run meanwhile." in what_next(run_status(ledger, run))[-1]

    @pytest.mark.parametrize("how", ["added", "failed", "paused"])
    def test_shards_that_were_queued_just_now_do_not_stall_a_run(self, ledger: Ledger, run: str, how: str) -> None:
        finish(ledger, run, A.name)
        if how == "failed":
            ledger.fail(claimed(ledger, run, B.name), "no column text", "")
        if how == "paused":
            ledger.pause(run)
        let_pass(ledger, run, 400)
        announce(ledger.redis, replace(READY, activity_seconds=400))

        if how == "failed":
            ledger.retry(run)
        elif how == "paused":
            ledger.resume(run)
        else:
            ledger.create_run(SPEC, [A, B, a_shard("crawl/c")], now=0)

        status = run_status(ledger, run)
        assert (status.word, what_next(status)) == ("running", [])

        let_pass(ledger, run, 400)
        assert run_status(ledger, run).word == "stalled"

    def test_the_shards_are_a_bar_until_none_is_open(self, ledger: Ledger, run: str) -> None:
        ledger.create_run(SPEC, [A, B, a_shard("crawl/c"), a_shard("crawl/d")], now=0)
        finish(ledger, run, A.name)
        ledger.fail(claimed(ledger, run, B.name), "no column text", "")
        claim = claimed(ledger, run, "crawl/c")

        begun = status_screen(run_status(ledger, run))
        ledger.complete(claim, a_receipt(run, claim.shard))
        finish(ledger, run, "crawl/d")
        ended = status_screen(run_status(ledger, run))

        assert f"progress {'█' * 10}{'▒' * 10}{'×' * 10}{'░' * 10}  25% of shards done" in begun
        assert not [line for line in ended if line.startswith("progress")]

    def test_the_cost_is_the_time_of_all_workers_times_the_price(self, ledger: Ledger, run: str) -> None:
        first, second = claimed(ledger, run), claimed(ledger, run, B.name, owner="another")
        slow = Ledger(ledger.redis, Settings(lease_seconds=7200))
        for claim, seconds in ((first, 1800), (second, 5400)):
            ledger.redis.hincrby(Keys(run).attempts(claim.shard.name), "noted_ms", -1000 * seconds)
        slow.complete(first, a_receipt(run, first.shard, rows_in=1000, rows_kept=1000, rows_dropped=0, rows_errored=0))
        slow.release(second)  # what is scored again later is paid for too

        status = run_status(ledger, run, price_per_gpu_hour=1.5)

        assert status.counts.worker_seconds == pytest.approx(7200, abs=5)
        assert status.cost is not None
        (cost,) = [line for line in status_lines(status) if line.startswith("cost ")]
        assert cost.startswith("cost     3.00 so far; 3,000.0")
        assert cost.endswith(" per million rows; starts and idle time are not counted")
        for each in (status, run_status(ledger, run)):
            assert "work     2 h of all workers together" in status_lines(each)
        assert status.as_json()["cost"] == asdict(status.cost)

    def test_workers_that_score_nothing_for_minutes_stall_a_run(self, ledger: Ledger, claim: Claim) -> None:
        ledger.renew(claim, rows=5)
        let_pass(ledger, claim.run_id, 400)
        announce(ledger.redis, replace(READY, activity="busy", run_id=claim.run_id, activity_seconds=400))

        status = run_status(ledger, claim.run_id)

        assert status.word == "stalled"
        assert what_next(status) == [
            "1 worker serves this run, but no row was scored for 7 min. Look at the logs: w1@host/7."
        ]
        assert progress_line(status) == f"stalled: {what_next(status)[0]}"


class TestSpeed:
    def test_rows_from_a_checkpoint_do_not_count_again(self, ledger: Ledger, claim: Claim) -> None:
        ledger.renew(claim, rows=1000)
        ledger.report_crash(claim.run_id, A.name, "w1@host/7", "killed by signal 9")
        again = claimed(ledger, claim.run_id)

        ledger.renew(again, rows=1000)
        ledger.renew(again, rows=1010)

        assert ledger.pace(claim.run_id).rows == 1010

    def test_shards_that_were_restored_from_receipts_were_not_scored_now(self, ledger: Ledger, run: str) -> None:
        ledger.restore(run, [a_receipt(run, A), a_receipt(run, B)])

        status = run_status(ledger, run)

        assert (status.counts.rows_in, status.rows_per_second) == (20, 0)


def test_what_is_known_of_a_run_has_a_line_and_is_in_the_json(ledger: Ledger, run: str) -> None:
    before = status_lines(run_status(ledger, run))
    scored = a_scoring_receipt(refused_dtypes=("bfloat16",))
    for shard, errors in ((A, {"blank text": 1}), (B, {"blank text": 2, "null text": 4})):
        errored = sum(errors.values())
        counts = {"rows_in": 9 + errored, "rows_errored": errored, "errors": errors, "left_out": {"meta.by": errored}}
        ledger.complete(claimed(ledger, run, shard.name), a_receipt(run, shard, scorings=(scored,), **counts))
    ledger.steer(run, Steering(max_workers=8))

    status = run_status(ledger, run)

    told = {
        "errored  4 null text, 3 blank text",
        "left out meta.by (7 rows)",
        "format   score in float32 (in bfloat16 the scores differ too much)",
        "workers  none; at most 8 have shards at once",
        f"output   {SPEC.output_uri}; 400 bytes in 2 shards",
    }
    assert told <= set(status_lines(status))
    assert {"workers  none", f"output   {SPEC.output_uri}"} <= set(before)
    assert not [line for line in before if line.startswith(("errored", "format"))]
    assert status.as_json()["error_reasons"] == {"null text": 4, "blank text": 3}
    assert status.as_json()["left_out"] == {"meta.by": 7}
    assert status.as_json()["steering"] == asdict(Steering(max_workers=8))


class TestTroubles:
    """What went wrong is on the screen, also while the run goes on."""

    def test_a_shard_that_waits_after_an_error_is_told_with_the_error(self, ledger: Ledger, claim: Claim) -> None:
        ledger.retry_later(claim, "S3 answered 503.", "trace")
        announce(ledger.redis, READY)

        status = run_status(ledger, claim.run_id)

        assert what_next(status) == [
            f"Shard {A.name} is tried again after a failed attempt on w1@host/7: S3 answered 503."
        ]
        assert verdict(status) == "running; 1 shard to try again; 1 attempt failed since a shard was done"
        assert level(status) == "doubtful"

    def test_a_full_disk_is_no_good_state_and_no_time_is_left_until_a_shard_is_stored(
        self, ledger: Ledger, run: str
    ) -> None:
        ledger.create_run(SPEC, [A, B, a_shard("crawl/c")], now=0)
        finish(ledger, run, A.name)
        announce(ledger.redis, replace(READY, activity="busy", run_id=run))
        full = "Storing data/b.parquet in /out: no space left."
        claim = claimed(ledger, run, B.name)
        ledger.renew(claim, rows=10, report=REPORT)
        ledger.retry_later(claim, full, "trace")
        other = claimed(ledger, run, "crawl/c")
        ledger.renew(other, rows=4, report=REPORT)
        one_failed = run_status(ledger, run)
        ledger.redis.zadd(Keys(run).waiting, {B.name: 1})
        ledger.release(other)
        claim = claimed(ledger, run, B.name)
        again = run_status(ledger, run)
        ledger.complete(claim, a_receipt(run, B))

        stored = run_status(ledger, run)

        said = f"Shard {B.name} is tried again after a failed attempt on w1@host/7: {full}"
        assert verdict(one_failed) == "running; 1 shard to try again; 1 attempt failed since a shard was done"
        assert said in what_next(one_failed)
        assert (again.word, verdict(again)) == ("retrying", f"retrying: {said}")
        for status in (one_failed, again):
            assert (level(status), status.time_left, status.as_json()["remaining_seconds"]) == ("doubtful", "", None)
            assert not any(" left" in line and "space left" not in line for line in status_screen(status))
        assert (level(stored), stored.retries, stored.counts.failed_attempts) == ("good", (), 0)

    def test_shards_that_all_wait_for_another_attempt_are_not_stalled_workers(self, ledger: Ledger, run: str) -> None:
        announce(ledger.redis, replace(READY, activity_seconds=400.0))
        for shard in (A, B):
            ledger.retry_later(claimed(ledger, run, shard.name), f"Uploading {shard.name}: the Hub answered 429.", "")
        let_pass(ledger, run, 400)

        status = run_status(ledger, run)

        assert verdict(status) == (
            f"retrying: 2 shards are tried again after failed attempts on w1@host/7, such as {A.name}: "
            f"Uploading {A.name}: the Hub answered 429."
        )

    def test_a_shard_that_has_advanced_since_its_failed_attempt_is_not_one_to_try_again(
        self, ledger: Ledger, claim: Claim
    ) -> None:
        announce(ledger.redis, READY)
        ledger.retry_later(claim, "S3 answered 503.", "")
        ledger.redis.zadd(Keys(claim.run_id).waiting, {A.name: 1})
        claim = claimed(ledger, claim.run_id)
        before = run_status(ledger, claim.run_id).retries

        ledger.save_scores(claim, 0, b"1234")

        assert [retry.shard for retry in before] == [A.name]
        assert run_status(ledger, claim.run_id).retries == ()

    def test_a_clock_of_redis_that_goes_back_makes_nothing_look_recent_or_fast(
        self, ledger: Ledger, claim: Claim
    ) -> None:
        run = claim.run_id
        ledger.renew(claim, rows=500)
        ledger.report_crash(run, A.name, "w1@host/7", "killed by signal 9")
        announce(ledger.redis, replace(READY, activity_seconds=400.0))
        let_pass(ledger, run, -3600)
        for field, noted in ledger.redis.hgetall(Keys(run).run).items():
            if field.startswith("pace:"):
                slot, rows = noted.split(":")
                ledger.redis.hset(Keys(run).run, field, f"{int(slot) + 360}:{rows}")

        status = run_status(ledger, run)

        assert (status.advances, status.pace.rows_lately, status.remaining) == (False, 0, None)
        assert not any("died" in line or "500" in line for line in (verdict(status), *what_next(status)))

    @pytest.mark.parametrize(
        ("is_told", "why"), [(True, "killed by signal 9"), (False, "The lease ended without a renewal.")]
    )
    def test_a_killed_process_and_an_expired_lease_are_told_as_what_they_are_until_the_shard_is_done(
        self, is_told: bool, why: str, ledger: Ledger, claim: Claim
    ) -> None:
        """A worker tells of its killed process. A lease also ends if the worker is frozen, or cut off from Redis."""
        announce(ledger.redis, replace(READY, name="w2@host/8"))
        if is_told:
            ledger.report_crash(claim.run_id, A.name, "w1@host/7", "killed by signal 9")
        else:
            ledger.redis.zadd(Keys(claim.run_id).running, {A.name: 1})
        ledger.take_due(claim.run_id, room=10)  # sent to the other workers again
        at_once = run_status(ledger, claim.run_id)
        held = ledger.claim(claim.run_id, A.name, "w2@host/8")
        assert isinstance(held, Claim)
        again = run_status(ledger, claim.run_id)
        ledger.complete(held, a_receipt(claim.run_id, A))

        done = run_status(ledger, claim.run_id)

        said = f"Shard {A.name} is tried again after a failed attempt on w1@host/7: {why}"
        assert verdict(at_once) == "running; 1 shard to try again; 1 attempt failed since a shard was done"
        assert said in what_next(at_once)
        assert verdict(again) == f"retrying: {said}"
        assert verdict(done) == "on track"

    def test_a_worker_that_hangs_is_named_and_one_that_was_stopped_has_not_died(
        self, ledger: Ledger, claim: Claim
    ) -> None:
        announce(ledger.redis, replace(READY, name="w2@host/8"))
        ledger.release(claim)
        stopped = verdict(run_status(ledger, claim.run_id))
        claim = claimed(ledger, claim.run_id)
        ledger.renew(claim, rows=4, report=replace(REPORT, idle_seconds=200.0))
        in_order = verdict(run_status(ledger, claim.run_id))
        ledger.renew(claim, rows=4, report=replace(REPORT, idle_seconds=360.0))

        status = run_status(ledger, claim.run_id)

        assert stopped == in_order == "on track"
        assert (verdict(status), level(status)) == ("running; no progress on 1 shard for 6 min", "doubtful")
        (line,) = what_next(status)
        assert line.startswith(f"No progress for 6 min from w1@host/7 ({A.name}). ")

    def test_shards_without_a_report_are_counted_as_shards_and_named_with_the_time_until_the_leases_end(
        self, ledger: Ledger, claim: Claim
    ) -> None:
        """A worker may hold two shards: one that it stores, and the next."""
        announce(ledger.redis, replace(READY, name="w2@host/8"))
        ledger.renew(claim, rows=4, report=REPORT)
        ledger.renew(claimed(ledger, claim.run_id, B.name), rows=4, report=REPORT)
        in_order = verdict(run_status(ledger, claim.run_id))
        for shard in (A, B):
            ledger.redis.hincrby(Keys(claim.run_id).attempts(shard.name), "noted_ms", -23_000)
            ledger.redis.zincrby(Keys(claim.run_id).running, -23_500, shard.name)

        status = run_status(ledger, claim.run_id)

        assert in_order == "on track"
        assert (verdict(status), level(status)) == ("running; no report on 2 shards for 23 s", "doubtful")
        (line,) = what_next(status)
        assert re.fullmatch(
            rf"No report for 23 s from w1@host/7 \({A.name}\), w1@host/7 \({B.name}\)\. "
            r"Without one, the leases end in 3[67] s, and the attempt counts as a crash\.",
            line,
        )

    def test_a_run_that_waits_for_a_worker_says_that_before_its_failed_shards(self, ledger: Ledger, run: str) -> None:
        ledger.fail(claimed(ledger, run, A.name), "no column text", "")

        status = run_status(ledger, run)

        assert verdict(status).partition(": ")[2] == NO_WORKER
        assert f"After fixing the cause, try it again: producer retry {run}" in what_next(status)

    def test_a_run_that_failed_for_several_causes_has_a_line_for_each_and_counts_them_in_the_verdict(
        self, ledger: Ledger, run: str
    ) -> None:
        ledger.create_run(SPEC, [A, B, a_shard("crawl/c")], now=0)
        for name, error in ((A.name, "no column text."), (B.name, "no column text."), ("crawl/c", "It is empty.")):
            ledger.fail(claimed(ledger, run, name), error, "")

        status = run_status(ledger, run)

        after = f"After fixing the cause, try them again: producer retry {run}"
        assert verdict(status) == f"failed: 3 shards failed. {after}"
        assert verdict(run_status(ledger, run, most_failures=1)) == (
            f"failed: 3 shards failed. Shard {A.name} failed on w1@host/7: no column text. {after}"
        )
        assert status_screen(status)[-2:] == [
            f"2 shards failed on w1@host/7, such as {A.name}: no column text.",
            "Shard crawl/c failed on w1@host/7: It is empty.",
        ]

    def test_publishing_without_the_failed_shards_is_proposed_when_the_others_are_done(
        self, ledger: Ledger, run: str
    ) -> None:
        proposed = f"Or publish the others without it: producer finalize {run}"
        ledger.create_run(SPEC, [A, B, a_shard("crawl/c")], now=0)
        ledger.fail(claimed(ledger, run, A.name), "no column text", "")
        finish(ledger, run, B.name)
        too_early = what_next(run_status(ledger, run))
        finish(ledger, run, "crawl/c")

        assert proposed not in too_early
        assert proposed in what_next(run_status(ledger, run))

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            (lambda ledger, run: announce(ledger.redis, READY), "good"),
            (lambda ledger, run: announce_machine(ledger.redis, MACHINE), "good"),
            (lambda ledger, run: None, "doubtful"),
            (
                lambda ledger, run: (announce(ledger.redis, READY), withdraw_finalizer(ledger.redis, "box/13")),
                "doubtful",
            ),
            (lambda ledger, run: finish(ledger, run, A.name), "bad"),
        ],
    )
    def test_a_run_that_waits_for_a_person_is_not_marked_as_good(
        self, ledger: Ledger, run: str, change: Callable[[Ledger, str], object], expected: str
    ) -> None:
        change(ledger, run)

        assert level(run_status(ledger, run)) == expected


class TestEnds:
    @pytest.fixture
    def done(self, ledger: Ledger, run: str) -> str:
        finish(ledger, run, A.name, B.name)
        return run

    def test_a_run_that_cannot_be_published_has_failed_and_is_over(self, ledger: Ledger, done: str) -> None:
        ledger.record_publish_error(done, "The repository is gone.", is_permanent=True)

        status = run_status(ledger, done)

        assert (status.word, status.exit_code, status.is_over) == ("failed", ExitCode.FAILED, True)
        assert what_next(status) == [
            "It cannot be published: The repository is gone.",
            f"After fixing the cause: producer finalize {done}",
        ]

    def test_a_scorer_that_invents_a_reason_and_an_input_with_a_field_for_each_row_do_not_fill_the_ledger(
        self, ledger: Ledger, claim: Claim
    ) -> None:
        errors = {f"reason {number}": 1 for number in range(80)}
        counts = {"rows_in": 89, "rows_errored": 80, "errors": errors, "left_out": errors}
        receipt = a_receipt(claim.run_id, claim.shard, **counts)

        ledger.complete(claim, receipt)
        reasons, left_out = ledger.error_reasons(claim.run_id), ledger.fields_left_out(claim.run_id)
        ledger.requeue(claim.run_id, {A.name: "lost"}, of=[receipt])

        assert (len(reasons), reasons["other reasons"], sum(reasons.values())) == (51, 30, 80)
        assert (len(left_out), left_out["others"], sum(left_out.values())) == (51, 30, 80)
        assert ledger.error_reasons(claim.run_id) == ledger.fields_left_out(claim.run_id) == {}

    def test_the_status_says_how_thoroughly_a_published_output_was_checked(
        self, ledger: Ledger, tmp_path: Path
    ) -> None:
        spec = a_spec(output_uri=str(tmp_path / "out"))
        ledger.create_run(spec, [A], now=0)
        claim = claimed(ledger, spec.run_id)
        output = FolderOutput(spec.output_uri, spec.run_id)
        ledger.complete(claim, stage_shard(output, spec.run_id, A, tmp_path))
        finalize_run(ledger, spec.run_id, without_failed=False)

        unchecked = run_status(ledger, spec.run_id)
        by_size, by_sha256 = (looked_at(ledger, unchecked, hashes=hashes) for hashes in (False, True))

        published = f"Published: {spec.output_uri}"
        assert what_next(unchecked) == [published]
        assert what_next(by_size) == [
            published,
            "Checked just now: every file is there and has its size. With --verify its sha256 is compared too.",
        ]
        assert what_next(by_sha256) == [published, "Checked just now: every file is there and has its sha256."]

        (tmp_path / "out" / CARD_PATH).write_text("# My own words")
        edited = looked_at(ledger, unchecked, hashes=True)
        assert what_next(edited)[-1] == "README.md has changed since it was published."
        assert (edited.word, edited.exit_code) == ("published", ExitCode.DONE)

    @pytest.mark.parametrize(
        ("counts", "said"),
        [
            (
                {"rows_kept": 0, "rows_dropped": 9, "rows_errored": 1},
                [
                    "No row was kept: the filter drops every row that has a score. The scores are stored, so another "
                    f"filter needs no model: producer refilter {SPEC.run_id} --output … --min-score … (or --where …)"
                ],
            ),
            (
                {"rows_kept": 0, "rows_dropped": 0, "rows_errored": 10},
                ["No row was kept, because none has a score: all are errored."],
            ),
            ({"rows_in": 0, "rows_kept": 0, "rows_dropped": 0, "rows_errored": 0}, []),
            ({"rows_kept": 1, "rows_dropped": 9, "rows_errored": 0}, []),
        ],
    )
    def test_a_published_run_that_keeps_no_row_says_why_and_what_to_do(
        self, ledger: Ledger, run: str, counts: dict[str, int], said: list[str]
    ) -> None:
        for shard in (A, B):
            ledger.complete(claimed(ledger, run, shard.name), a_receipt(run, shard, **counts))
        assert what_next(run_status(ledger, run)) == []
        ledger.record_publication(run, Publication(uri="memory://out", commit="", shards=2))

        status = run_status(ledger, run)

        assert what_next(status) == ["Published: memory://out", *said]
        assert all(line in str(status) for line in said)
        assert status.exit_code == ExitCode.DONE

    @pytest.mark.parametrize(
        ("reason", "said"), [("", "It is paused."), ("it has cost 50.02", "It is paused: it has cost 50.02.")]
    )
    def test_a_paused_run_is_not_over_and_says_how_to_resume_it(
        self, ledger: Ledger, run: str, reason: str, said: str
    ) -> None:
        claimed(ledger, run)
        announce(ledger.redis, READY)
        ledger.pause(run, reason=reason)

        status = run_status(ledger, run)

        assert (status.word, status.exit_code, status.is_over) == ("paused", ExitCode.RUNNING, False)
        assert what_next(status) == [f"{said} Resume it: producer resume {run}"]
        assert progress_line(status) == f"paused: {said} Resume it: producer resume {run}"
        assert status.as_json()["paused"] == reason


def test_refusals_are_shown_with_their_counts(ledger: Ledger, run: str) -> None:
    for _ in range(1200):
        ledger.count_refused("messages that are not ours")
    ledger.count_refused("messages of a newer version")

    status = run_status(ledger, run)

    assert (
        "Refused or repaired lately, in all runs: messages of a newer version (1); messages that are not ours (1,200)."
    ) in what_next(status)
    assert status.as_json()["refused"] == {"messages of a newer version": 1, "messages that are not ours": 1200}


@pytest.mark.parametrize(
    ("spec", "command"),
    [
        (SPEC, START),
        (a_spec(model=MINE), "worker start --model '/my models/mine'"),
        (
            a_spec(scorings=(SPEC.scorings[0], replace(SPEC.scorings[0], model=OTHER, score_column="tox_score"))),
            "worker start --model HuggingFaceFW/fineweb-edu-classifier --model org/other",
        ),
        (
            a_spec(model=replace(SPEC.scorings[0].model, name="/m.bin", scorer="fasttext")),
            "worker start --model /m.bin --scorer fasttext",
        ),
    ],
)
def test_the_command_that_serves_a_run_works_as_printed(ledger: Ledger, spec: RunSpec, command: str) -> None:
    ledger.create_run(spec, [A], now=0)

    assert run_status(ledger, spec.run_id).worker_command == command


class TestVerdict:
    """The first line of the screen says whether all is well, and if not what to type."""

    def test_a_run_on_track_says_how_long_it_takes(self, ledger: Ledger, run: str) -> None:
        first = claimed(ledger, run)
        ledger.redis.hincrby(Keys(run).attempts(A.name), "noted_ms", -10_000)
        ledger.complete(first, a_receipt(run, A))
        ledger.renew(claimed(ledger, run, B.name), rows=4, report=REPORT)
        announce(ledger.redis, replace(READY, activity="busy", run_id=run, shard=B.name))

        status = run_status(ledger, run)

        screen, left = status_screen(status), status.remaining
        assert left is not None
        assert left.low < 6 * 10 / 14 < left.high
        assert status.as_json()["remaining_seconds"] == asdict(left)
        assert screen[0] == f"on track, {left} left"
        assert [line for line in screen if line.startswith("speed") and line.endswith(f"; {left} left")]
        assert "         w1@host/7 (cpu): 4 rows of crawl/b; 118 rows/s; 90% device, 10% input" in screen
        assert "kept     64.3% so far" in screen

    def test_a_run_that_keeps_no_row_says_the_highest_score_or_that_it_only_scores(self, ledger: Ledger) -> None:
        for where, told in (
            ("score >= 9", "kept     no row; the highest score is from 3.75 to 4"),
            ("false", "kept     no row: this run publishes scores, by which rows can be chosen"),
        ):
            spec = replace(SPEC, where=where)
            ledger.create_run(spec, [A], now=0)
            ledger.complete(claimed(ledger, spec.run_id), a_receipt(spec.run_id, A, rows_kept=0, rows_dropped=9))

            assert told in status_screen(run_status(ledger, spec.run_id))

    def test_the_line_of_a_worker_says_what_is_known_of_its_device(self, ledger: Ledger, claim: Claim) -> None:
        announce(ledger.redis, replace(READY, activity="busy", run_id=claim.run_id, shard=A.name))
        told = []
        for shares in (
            {},
            {"peak_share": 0.412},
            {"peak_share": 0.412, "memory_share": 0.63, "busy_share": 1.0, "backend": "graphed"},
        ):
            ledger.renew(claim, rows=4, report=replace(REPORT, **shares))
            (line,) = [line for line in status_lines(run_status(ledger, claim.run_id)) if "w1@host/7" in line]
            told.append(line.partition("90% device, 10% input")[2])

        (running,) = run_status(ledger, claim.run_id).as_json()["running"]

        assert told == ["", "; 41% of peak", "; graphed, 41% of peak, 63% of memory, 100% busy"]
        assert [running["report"][name] for name in ("peak_share", "memory_share", "busy_share")] == [0.412, 0.63, 1.0]

    def test_a_run_that_goes_on_beside_failures_or_without_a_finalizer_is_not_on_track(
        self, ledger: Ledger, run: str
    ) -> None:
        ledger.fail(claimed(ledger, run, A.name), "no column text", "")
        claimed(ledger, run, B.name)
        announce(ledger.redis, replace(READY, activity="busy", run_id=run, shard=B.name))
        withdraw_finalizer(ledger.redis, "box/13")

        assert verdict(run_status(ledger, run)) == "running; 1 shard failed; no finalizer is running"


def test_in_a_terminal_of_80_columns_no_id_is_wrapped_or_cut(ledger: Ledger, redis_url: str) -> None:
    spec = a_spec(output_uri="/data/kept")
    ledger.create_run(spec, [a_shard("a")], now=1.0)

    terminal = {"FORCE_COLOR": "1", "COLUMNS": "80", "TERM": "xterm"}
    done = call_command("producer", "runs", environment={"REDIS_URL": redis_url, **terminal})

    assert done.returncode == 0, done.stderr
    lines = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).splitlines()
    assert max(map(len, lines)) <= 80
    assert {line.split()[0] for line in lines} >= {"run", spec.run_id}
    (row,) = (line for line in lines if line.startswith(spec.run_id))
    assert row.split()[1] == "queued"
    assert "use a wider terminal or --json." in done.stderr
