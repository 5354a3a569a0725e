"""The status of a run, for people and for programs, is true and says what to do.

A test shows a run once or several times. What it shows is in the file of tests/golden/status with the test's name.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shardsift.fleet.ledger import Counts, Ledger, Pace, Publication
from shardsift.fleet.ledger.base import REFUSED
from shardsift.fleet.ledger.records import RunState, Steering
from shardsift.fleet.presence.announcements import FinalizerState, announce_finalizer
from shardsift.fleet.presence.demand import Wanted
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.storage.folder import FolderOutput
from shardsift.fleet.storage.output import CARD_PATH
from shardsift.producer.publishing.publish import finalize_run, with_findings
from shardsift.producer.status import run_status
from shardsift.producer.status.screen import status_screen, status_table
from support.golden import FOLDER, check_golden
from support.processes import call_command
from support.records import a_receipt, a_scoring_receipt, a_spec, stage_shard
from support.watched_run import REPORT, SPEC, A, B, C, WatchedRun, clocked_ledger

OTHER = replace(SPEC.scorings[0].model, name="org/other", revision="89ab")
MINE = replace(SPEC.scorings[0].model, name="/my models/mine", revision="sha256-abc")
FULL_DISK = "Storing data/b.parquet in /out: no space left."


@pytest.fixture
def ledger(redis_url: str) -> Iterator[Ledger]:
    with clocked_ledger(redis_url) as ledger:
        yield ledger
        ledger.redis.config_set("maxmemory", 0)


@pytest.fixture
def run(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[WatchedRun]:
    """A run. What a test shows of it must be what the golden file says."""
    monkeypatch.chdir(tmp_path)
    run = WatchedRun(ledger)
    yield run
    if run.shown:
        check_golden("status", request.node.name.removeprefix("test_"), run.text())


# --- waiting for workers ---


def test_without_a_free_worker_the_command_that_starts_one_or_what_they_do_is_named(run: WatchedRun) -> None:
    run.show("new")
    run.worker(queue="score.other")
    run.show("a worker serves another model")
    run.worker(activity="busy", run_id="another.run")
    run.show("its own worker is busy with another run")
    run.worker(activity="stopping")
    run.finish(A.name)
    run.show("its own worker stops")
    run.worker()
    run.show("its own worker is between two shards")


def test_a_loading_worker_is_waited_for(run: WatchedRun) -> None:
    run.worker(activity="loading", activity_seconds=35.0, device=None)
    run.show("the first")
    run.show("in a run that reads stored scores", replace(run.status(), scores_are_stored=True))
    run.ledger.renew(run.claim(), rows=5)
    run.ledger.report_crash(run.run_id, A.name, "w1@host/7", "killed by signal 9")
    run.passes(60)
    run.show("its process is replaced")


def test_machines_are_named_that_are_free_full_of_another_model_or_failed_to_serve(run: WatchedRun) -> None:
    run.machine(free=0)
    run.show("none is free")
    run.machine()
    run.machine(name="full/4", free=0)
    run.show("one is free")
    run.machine(name="full/4", wanted=Wanted(models=(OTHER,)))
    run.machine(wanted=Wanted(dtype="bfloat16"))
    run.show("both want something else")
    run.machine(avoids={SPEC.queue: "CUDA out of memory."})
    run.show("one could not serve it")
    claim = run.ledger.claim(run.run_id, A.name, "w1", number_format="bfloat16")
    run.ledger.complete(claim, a_receipt(run.run_id, A))  # type: ignore[arg-type]
    run.show("its scores so far are in 16 bits")


def test_a_run_of_this_machine_that_nothing_goes_on_with_names_the_same_command(run: WatchedRun) -> None:
    run.worker(only_run="another")  # of a `producer run` beside it
    run.machine(only_run="another")
    run.show("before any worker", is_of_this_machine=True)
    run.finish(A.name)
    run.show("stopped", is_of_this_machine=True)
    run.ledger.renew(run.claim(B.name), rows=4)
    run.show("a shard is held, and no worker is seen", is_of_this_machine=True)


def test_an_interrupted_enqueue_is_to_be_run_again(run: WatchedRun) -> None:
    half = a_spec(input_revision="2")
    run.ledger.add_shards(half, [A], now=0)
    run.show("half enqueued", run_status(run.ledger, half.run_id))


def test_a_model_folder_that_is_another_one_on_a_machine_is_named_with_what_helps(run: WatchedRun) -> None:
    spec = a_spec(model=MINE)
    run.ledger.create_run(spec, [A], now=0)
    for revision in ("sha256-abc", "sha256-abd"):
        run.machine(wanted=Wanted(models=(replace(MINE, revision=revision),), dtype="bfloat16"))
        run.show(revision, run_status(run.ledger, spec.run_id))


def test_the_command_that_starts_a_worker_names_all_models_and_their_scorer(run: WatchedRun) -> None:
    two = (SPEC.scorings[0], replace(SPEC.scorings[0], model=OTHER, score_column="tox_score"))
    fasttext = replace(SPEC.scorings[0].model, name="/m.bin", scorer="fasttext")
    for spec in (a_spec(model=MINE), a_spec(scorings=two), a_spec(model=fasttext)):
        run.ledger.create_run(spec, [A], now=0)
        run.show(str(spec.scorings[-1].model.name), run_status(run.ledger, spec.run_id))


# --- going on ---


def test_a_run_on_track_says_how_long_it_takes_and_what_is_known_of_a_workers_device(run: WatchedRun) -> None:
    first = run.claim()
    run.passes(10)
    run.ledger.complete(first, a_receipt(run.run_id, A))
    claim = run.claim(B.name)
    run.ledger.renew(claim, rows=4, report=REPORT)
    run.worker(activity="busy", run_id=run.run_id, shard=B.name)
    run.ledger.steer(run.run_id, Steering(price_per_gpu_hour=360.0))
    run.show("on track")
    run.ledger.steer(run.run_id, Steering())
    run.ledger.renew(claim, rows=4, report=replace(REPORT, peak_share=0.412))
    run.show("with its share of the peak")
    more = {"peak_share": 0.412, "memory_share": 0.63, "busy_share": 1.0, "backend": "graphed"}
    run.ledger.renew(claim, rows=4, report=replace(REPORT, **more))
    run.show("with all that is known of its device")


def test_what_is_known_of_a_run_has_a_line_and_is_in_the_json(run: WatchedRun) -> None:
    scored = a_scoring_receipt(refused_dtypes=("bfloat16",), faulty_ways=("graphed",))
    for shard, errors in ((A, {"blank text": 1}), (B, {"blank text": 2, "null text": 4})):
        errored = sum(errors.values())
        counts = {"rows_in": 9 + errored, "rows_errored": errored, "errors": errors, "left_out": {"meta.by": errored}}
        run.finish(shard.name, scorings=(scored,), **counts)
    run.ledger.steer(run.run_id, Steering(max_workers=8))
    run.ledger.redis.hset(REFUSED, mapping={"stored files that were lost": 1200, "outputs of lost attempts": 1})
    run.show("all shards are done")


def test_rows_from_a_checkpoint_or_from_receipts_do_not_count_as_scored_now(run: WatchedRun) -> None:
    run.ledger.renew(run.claim(), rows=1000)
    run.ledger.report_crash(run.run_id, A.name, "w1@host/7", "killed by signal 9")
    again = run.claim()
    run.ledger.renew(again, rows=1000)
    run.ledger.renew(again, rows=1010)
    run.ledger.restore(run.run_id, [a_receipt(run.run_id, B)])
    run.show("1,010 rows were scored")


def test_a_run_that_keeps_no_row_says_the_highest_score_or_that_it_only_scores(run: WatchedRun) -> None:
    for where in ("score >= 9", "false"):
        spec = replace(SPEC, where=where)
        run.ledger.create_run(spec, [A], now=0)
        claim = run.ledger.claim(spec.run_id, A.name, "w1")
        run.ledger.complete(claim, a_receipt(spec.run_id, A, rows_kept=0, rows_dropped=9))  # type: ignore[arg-type]
        run.show(where, run_status(run.ledger, spec.run_id))


def test_a_paused_run_is_not_over_and_says_how_to_resume_it(run: WatchedRun) -> None:
    run.claim()
    run.worker()
    run.ledger.pause(run.run_id)
    run.show("by a person")
    run.ledger.resume(run.run_id)
    run.ledger.pause(run.run_id, reason="it has cost 50.02")
    run.show("for its cost")


def test_shards_that_were_queued_just_now_do_not_stall_a_run(run: WatchedRun) -> None:
    run.finish(A.name)
    run.fail(B.name)
    run.worker(activity_seconds=400)
    run.passes(400)
    run.ledger.retry(run.run_id)
    run.show("failed and retried")
    run.passes(400)
    run.ledger.pause(run.run_id)
    run.ledger.resume(run.run_id)
    run.show("paused and resumed")
    run.passes(400)
    run.add_shards(C.name)
    run.show("added")
    run.passes(400)
    run.show("nothing happened since")


# --- in trouble ---


def test_workers_that_score_nothing_for_minutes_stall_a_run_also_if_the_clock_of_redis_goes_back(
    run: WatchedRun,
) -> None:
    run.ledger.renew(run.claim(), rows=500)
    run.passes(400)
    run.worker(activity="busy", run_id=run.run_id, activity_seconds=400)
    run.show("stalled")
    run.ledger.report_crash(run.run_id, A.name, "w1@host/7", "killed by signal 9")
    run.passes(-3600)
    run.show("after the clock of Redis went back by an hour")


def test_without_a_finalizer_a_run_says_so(run: WatchedRun) -> None:
    announce_finalizer(run.ledger.redis, FinalizerState(name="box/14", only_run="another-run"))
    run.without_finalizer()
    run.ledger.steer(run.run_id, Steering(max_cost=2.0, price_per_gpu_hour=1.0))
    run.worker()
    run.fail(A.name)
    run.show("its workers go on, a shard failed, and its cost has a limit")
    run.ledger.steer(run.run_id, Steering())
    run.ledger.retry(run.run_id)
    run.finish(A.name, B.name)
    run.show("all shards are done")
    run.show("on this machine", is_of_this_machine=True)
    run.ledger.record_publish_error(run.run_id, "The Hub answered 503.", is_permanent=False, retry_after_seconds=60)
    run.show("after an error")
    run.machine()
    run.show("on this machine, while its command goes on", is_of_this_machine=True)
    assert "publishing, no finalizer" in list(status_table([run.status()]).columns[1].cells)


def test_a_redis_that_is_full_is_told_and_not_that_no_worker_is_there(run: WatchedRun) -> None:
    run.ledger.redis.config_set("maxmemory", 1)
    run.show("full")
    run.ledger.redis.config_set("maxmemory", 0)
    assert run.status().no_writes == ""


def test_a_shard_that_waits_after_an_error_is_told_with_the_error_until_it_advances(run: WatchedRun) -> None:
    run.worker()
    run.try_later(A.name, "S3 answered 503.")
    run.show("it waits")
    claim = run.claim()
    run.show("it is tried again")
    run.ledger.save_scores(claim, 0, b"1234")
    run.show("it has advanced")


def test_a_full_disk_is_no_good_state_and_no_time_is_left_until_a_shard_is_stored(run: WatchedRun) -> None:
    run.add_shards(C.name)
    run.finish(A.name)
    run.worker(activity="busy", run_id=run.run_id)
    run.ledger.renew(claim := run.claim(B.name), rows=10, report=REPORT)
    run.ledger.retry_later(claim, FULL_DISK, "trace")
    run.ledger.renew(other := run.claim(C.name), rows=4, report=REPORT)
    run.show("one failed")
    run.ledger.release(other)
    claim = run.claim(B.name)
    run.show("again")
    run.ledger.complete(claim, a_receipt(run.run_id, B))
    run.show("stored")


def test_shards_that_all_wait_for_another_attempt_are_not_stalled_workers(run: WatchedRun) -> None:
    run.worker(activity_seconds=400.0)
    for shard in (A, B):
        run.try_later(shard.name, f"Uploading {shard.name}: the Hub answered 429.")
    run.passes(400)
    run.show("both wait")


def test_a_killed_process_and_an_expired_lease_are_told_as_what_they_are_until_the_shard_is_done(
    run: WatchedRun,
) -> None:
    """A worker tells of its killed process. A lease also ends if the worker is frozen, or cut off from Redis."""
    run.worker(name="w2@host/8")
    for shard in (A, B):
        run.claim(shard.name)
        if shard == A:
            run.ledger.report_crash(run.run_id, A.name, "w1@host/7", "killed by signal 9")
        else:
            for _ in range(3):  # more often than after an outage
                run.ledger.take_due(run.run_id, room=10)
                run.passes(21)
        run.ledger.take_due(run.run_id, room=10)  # sent to the other workers again
        run.show(f"{shard.name}: at once")
        again = run.claim(shard.name, owner="w2@host/8")
        run.show(f"{shard.name}: tried again")
        run.ledger.complete(again, a_receipt(run.run_id, shard))
        run.show(f"{shard.name}: done")


def test_a_worker_that_hangs_is_named_and_one_that_was_stopped_has_not_died(run: WatchedRun) -> None:
    run.worker(name="w2@host/8")
    run.ledger.release(run.claim())
    run.show("stopped")
    claim = run.claim()
    run.ledger.renew(claim, rows=4, report=replace(REPORT, idle_seconds=200.0))
    run.show("slow")
    run.ledger.renew(claim, rows=4, report=replace(REPORT, idle_seconds=360.0))
    run.show("hangs")


def test_shards_without_a_report_are_counted_as_shards_and_named_with_the_time_until_the_leases_end(
    run: WatchedRun,
) -> None:
    """A worker may hold two shards: one that it stores, and the next."""
    run.worker(name="w2@host/8")
    for shard in (A, B):
        run.ledger.renew(run.claim(shard.name), rows=4, report=REPORT)
    run.show("in order")
    run.passes(23)
    run.show("silent")


def test_a_run_that_failed_for_several_causes_has_a_line_for_each(run: WatchedRun) -> None:
    run.add_shards(C.name)
    run.fail(A.name)
    run.fail(B.name)
    run.show("two failed, one is open")
    run.fail(C.name, "It is empty.")
    run.show("all failed")
    run.show("with the first failure", most_failures=1)


def test_publishing_without_the_failed_shards_is_proposed_when_the_others_are_done(run: WatchedRun) -> None:
    run.add_shards(C.name)
    run.fail(A.name)
    run.finish(B.name)
    run.show("too early")
    run.finish(C.name)
    run.show("the others are done")


# --- ends ---


def test_a_cancelled_run_is_not_said_to_be_published_later(run: WatchedRun) -> None:
    run.ledger.cancel(run.run_id)
    run.show("at once")
    run.ledger.retry(run.run_id)
    run.finish(A.name)
    run.fail(B.name)
    for is_permanent in (False, True):
        run.ledger.record_publish_error(run.run_id, "The Hub answered 503.", is_permanent=is_permanent)
        run.ledger.cancel(run.run_id)
        run.show("after a permanent error" if is_permanent else "after an error")


def test_a_run_whose_shards_are_done_is_publishing_until_it_cannot_be_published(run: WatchedRun) -> None:
    run.claim()
    run.passes(5)
    run.finish(A.name, B.name)
    run.passes(60)
    run.show("publishing")
    run.ledger.record_publish_error(run.run_id, "The repository is gone.", is_permanent=True)
    run.show("it cannot be published")


def test_a_published_output_says_how_thoroughly_it_was_checked(run: WatchedRun) -> None:
    spec = a_spec(output_uri="out")
    run.ledger.create_run(spec, [A], now=0)
    output = FolderOutput(spec.output_uri, spec.run_id)
    claim = run.ledger.claim(spec.run_id, A.name, "w1")
    run.ledger.complete(claim, stage_shard(output, spec.run_id, A, Path()))  # type: ignore[arg-type]
    finalize_run(run.ledger, spec.run_id, without_failed=False)
    unchecked = run_status(run.ledger, spec.run_id)
    run.show("unchecked", unchecked)
    run.show("by size", with_findings(run.ledger, unchecked, hashes=False))
    run.show("by sha256", with_findings(run.ledger, unchecked, hashes=True))
    Path("out", CARD_PATH).write_text("# My own words")
    run.show("the card was edited", with_findings(run.ledger, unchecked, hashes=True))


def test_a_published_run_that_keeps_no_row_says_why_and_what_to_do(run: WatchedRun) -> None:
    none = {"rows_kept": 0, "rows_dropped": 0, "rows_errored": 0}
    for moment, counts in {
        "all are dropped": {"rows_dropped": 9, "rows_errored": 1},
        "all are errored": {"rows_errored": 10},
        "none came in": {"rows_in": 0},
        "some are kept": {"rows_kept": 1, "rows_dropped": 9},
    }.items():
        run.ledger.retry(run.run_id, changed=[A.name, B.name])
        run.finish(A.name, B.name, **none | counts)
        run.ledger.record_publication(run.run_id, Publication(uri="memory://out", commit="", shards=2))
        run.show(moment)


# --- besides the golden files ---


def test_each_golden_file_is_that_of_a_test() -> None:
    assert {f"test_{file.stem}" for file in (FOLDER / "status").iterdir()} <= globals().keys()


class EndingLedger(Ledger):
    """A ledger of a run whose last shard is completed while its status is read."""

    def progress(self, run_id: str) -> tuple[RunState, Counts, Pace]:
        for shard in self.running_shards(run_id):
            claim = self.claim(run_id, shard.name, shard.worker)
            self.complete(claim, a_receipt(run_id, A))  # type: ignore[arg-type]
        return super().progress(run_id)


def test_a_run_that_ends_while_its_status_is_read_shows_no_shard_as_running(run: WatchedRun) -> None:
    run.claim(A.name)
    run.finish(B.name)

    status = run_status(EndingLedger(run.ledger.redis, Settings()), run.run_id)

    assert (status.counts.done, status.counts.running, status.running) == (2, 0, ())


def test_a_notebook_shows_the_screen_as_text(run: WatchedRun) -> None:
    status = run.status()

    assert status._repr_html_() == f"<pre>{str(status).replace('<', '&lt;')}</pre>"
    assert str(status) == "\n".join(status_screen(status))


def test_reasons_and_fields_that_differ_from_row_to_row_do_not_fill_the_ledger(
    run: WatchedRun,
) -> None:
    ledger, run_id = run.ledger, run.run_id
    errors = {f"reason {number}": 1 for number in range(80)}
    run.finish(A.name, rows_in=89, rows_errored=80, errors=errors, left_out=errors)
    receipt = a_receipt(run_id, A)

    reasons, left_out = ledger.error_reasons(run_id), ledger.fields_left_out(run_id)
    ledger.requeue(run_id, {A.name: "lost"}, of=[receipt])

    assert (len(reasons), reasons["other reasons"], sum(reasons.values())) == (51, 30, 80)
    assert (len(left_out), left_out["others"], sum(left_out.values())) == (51, 30, 80)
    assert ledger.error_reasons(run_id) == ledger.fields_left_out(run_id) == {}


def test_in_a_terminal_of_80_columns_no_id_is_wrapped_or_cut(run: WatchedRun, redis_url: str) -> None:
    terminal = {"FORCE_COLOR": "1", "COLUMNS": "80", "TERM": "xterm"}
    done = call_command("producer", "runs", environment={"REDIS_URL": redis_url, **terminal})

    assert done.returncode == 0, done.stderr
    lines = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).splitlines()
    assert max(map(len, lines)) <= 80
    (row,) = (line for line in lines if line.startswith(run.run_id))
    assert row.split()[1] == "queued"
    assert "use a wider terminal or --json." in done.stderr
