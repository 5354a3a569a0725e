"""Redis may die, lose everything, fill up, become read-only, freeze or change its password: the run continues or resumes."""

import time

import pytest

from support.disturbed_runs import ALL_ROWS, WINDOW_ROWS, DisturbedRuns
from support.fleet import Fleet
from support.injected_faults import InjectedFaults
from support.redis_servers import RedisServer, moved
from support.waiting import wait_until


@pytest.fixture
def fleet(fleet: Fleet, server: RedisServer) -> Fleet:
    return moved(fleet, server.url)


@pytest.fixture
def faults(faults: InjectedFaults) -> InjectedFaults:
    """Scoring is slow, so that a fault always hits a shard in progress."""
    faults.use_stand_in(seconds_a_batch=0.15)
    return faults


def meets_trouble(runs: DisturbedRuns, name: str) -> bool:
    """Whether the log says that Redis fails, in the words of whichever part of the process met that first."""
    log = runs.fleet.log(name).read_text()
    return any(
        said in log
        for said in ("Waiting for Redis", "Redis does not answer", "Redis refuses", "Cannot connect to redis")
    )


@pytest.mark.faults
def test_a_worker_stopped_while_redis_is_away_gives_its_shard_back(runs: DisturbedRuns, server: RedisServer) -> None:
    runs.lease_seconds = 300
    run_id = runs.enqueue()

    with runs.worker() as worker:
        runs.wait_for_rows(run_id, 8)
        server.kill()
        worker.terminate()
        wait_until(lambda: meets_trouble(runs, "w1"), description="it waits for Redis")
        server.start()
        worker.wait(timeout=10)
    running = runs.fleet.ledger.counts(run_id).running
    runs.serve_until_published(run_id)

    assert running == 0
    assert runs.attempts() == {1}
    runs.check_nothing_lost_nothing_twice(run_id)


@pytest.mark.faults
@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        (["CONFIG SET maxmemory 1"], ["CONFIG", "SET", "maxmemory", "0"]),
        (["REPLICAOF 127.0.0.1 1"], ["REPLICAOF", "NO", "ONE"]),
        (["CONFIG SET requirepass another", "CLIENT KILL TYPE normal"], ["CONFIG", "SET", "requirepass", ""]),
    ],
    ids=["full", "replica", "password"],
)
def test_a_redis_that_refuses_writes_for_a_while_costs_no_row_and_no_worker(
    begins: list[str], ends: list[str], runs: DisturbedRuns, server: RedisServer
) -> None:
    run_id = runs.enqueue()
    operator = server.client

    with runs.finalizer() as finalizer, runs.worker("w1") as first, runs.worker("w2") as second:
        runs.wait_for_rows(run_id, 8)
        wait_until(lambda: runs.fleet.ledger.counts(run_id).running == 2, description="both workers hold a shard")
        for command in begins:
            operator.execute_command(*command.split())
        since = time.monotonic()
        wait_until(lambda: meets_trouble(runs, "finalizer"), description="the finalizer meets it")
        wait_until(lambda: time.monotonic() > since + 2 * runs.lease_seconds, description="leases run out")
        operator.execute_command(*ends)
        runs.wait_until_published(run_id, seconds=90)
        assert [process.poll() for process in (finalizer, first, second)] == [None, None, None]

    runs.check_each_row_scored_once(run_id)


@pytest.mark.faults
@pytest.mark.parametrize("redis_is_lost", [False, True])
def test_scores_without_room_in_redis_are_stored_with_the_output(runs: DisturbedRuns, redis_is_lost: bool) -> None:
    run_id = runs.enqueue()
    checkpoints = runs.output / ".shardsift" / run_id / "checkpoints"

    with runs.finalizer():
        with runs.worker("w1", SHARDSIFT_CHECKPOINT_MIB="0") as worker:
            wait_until(
                lambda: list(checkpoints.rglob("8")), description="a second window's scores are beside the output"
            )
            worker.kill()
            worker.wait()
        if redis_is_lost:
            runs.fleet.ledger.redis.flushall()
            runs.enqueue()
        with runs.worker("w2", SHARDSIFT_CHECKPOINT_MIB="0"):
            runs.wait_until_published(run_id)

    assert runs.faults.rows_scored() <= ALL_ROWS + WINDOW_ROWS
    assert not checkpoints.exists()
    runs.check_nothing_lost_nothing_twice(run_id)
