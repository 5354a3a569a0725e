"""A worker's log has what a person needs, once."""

import json
import re
from dataclasses import replace

import pytest

from support.disturbed_runs import DisturbedRuns, child_of
from support.injected_faults import LAUNCH
from support.redis_servers import RedisServer, moved
from support.waiting import wait_until


@pytest.mark.faults
def test_an_unexpected_error_and_a_killed_process_are_logged_once_and_celery_adds_no_noise(runs: DisturbedRuns) -> None:
    runs.faults.at(LAUNCH, "before", "runtime error")
    ledger = runs.fleet.ledger
    run_id = runs.enqueue()

    with runs.finalizer(), runs.worker() as worker:
        runs.wait_for_rows(run_id)
        child_of(worker).kill()
        wait_until(lambda: not ledger.counts(run_id).open, description="all shards are done")
        shards = ledger.counts(run_id).shards
        wait_until(
            lambda: len(done_lines(runs, run_id)) >= shards, description="the last one is in the log", seconds=10
        )

    log = runs.fleet.log("w1").read_text()
    assert log.count("Traceback (most recent call last)") == 1
    assert len(done_lines(runs, run_id)) == shards
    noise = ("[config]", "[queues]", "calling self.run()", "exiting with exitcode", "semaphore", "WorkerLostError")
    assert [words for words in noise if words in log] == []


def done_lines(runs: DisturbedRuns, run_id: str) -> list[str]:
    pattern = rf" in, \d+ kept, 0 errored \[run_id={run_id} shard=\S+ attempt=\d rows=\d+ seconds=\d+\.\d\]"
    return re.findall(pattern, runs.fleet.log("w1").read_text())


@pytest.mark.faults
def test_a_restart_of_redis_and_a_stop_leave_no_warnings_of_celery(runs: DisturbedRuns, server: RedisServer) -> None:
    runs = replace(runs, fleet=moved(runs.fleet, server.url))
    run_id = runs.enqueue()

    with runs.finalizer() as finalizer, runs.worker() as worker:
        runs.wait_for_rows(run_id)
        server.stop()
        server.start()
        runs.wait_until_published(run_id)
        for process in (worker, finalizer):
            process.terminate()
            process.wait(timeout=20)

    for name, loss in (("w1", "Connection to broker lost"), ("finalizer", "Redis does not answer")):
        log = runs.fleet.log(name).read_text()
        assert loss in log
        assert "leaked" not in log
        assert [line for line in log.splitlines() if "Warning" in line or "MainProcess" in line] == []
    assert (worker.returncode, finalizer.returncode) == (0, 0)


@pytest.mark.faults
def test_with_json_every_line_of_workers_and_finalizer_is_an_object(runs: DisturbedRuns) -> None:
    json_logs = {"SHARDSIFT_LOG_FORMAT": "json"}
    run_id = runs.enqueue()

    with runs.finalizer(**json_logs), runs.fleet.machine("--workers", "1", environment=runs.environment | json_logs):
        runs.wait_until_published(run_id)

    for name in ("machine", "finalizer"):
        lines = [json.loads(line) for line in runs.fleet.log(name).read_text().splitlines()]
        assert all({"time", "level", "message"} <= line.keys() for line in lines)
    done = [line for line in map(json.loads, runs.fleet.log("machine").read_text().splitlines()) if "seconds" in line]
    assert {line["run_id"] for line in done} == {run_id}
    assert {line["worker"] for line in done} == {"worker"}
    assert len({line["shard"] for line in done}) == runs.fleet.ledger.counts(run_id).done
