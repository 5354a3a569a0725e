"""While Redis is away, a log says so once a minute."""

import time
from dataclasses import replace

import pytest

from fleet.presence.announcements import list_machines
from support.disturbed_runs import DisturbedRuns
from support.redis_servers import RedisServer, moved
from support.waiting import wait_until

AWAY_SECONDS = 70


@pytest.mark.faults
def test_a_redis_that_is_away_costs_each_log_one_line_a_minute(runs: DisturbedRuns, server: RedisServer) -> None:
    runs = replace(runs, fleet=moved(runs.fleet, server.url))
    run_id = runs.enqueue()

    with runs.finalizer(), runs.fleet.machine(environment=runs.environment):
        wait_until(lambda: list_machines(runs.fleet.ledger.redis), description="the machine is there")
        runs.wait_for_rows(run_id)
        before = {name: len(lines(runs, name)) for name in ("finalizer", "machine")}
        server.stop()
        time.sleep(AWAY_SECONDS)  # what is promised is about this time
        said = {name: lines(runs, name)[count:] for name, count in before.items()}
        server.start()
        wait_until(lambda: runs.fleet.ledger.publication(run_id), description="the run is published", seconds=120)

    # At once and after a minute. The supervisor adds a line.
    assert 1 <= len(said["finalizer"]) <= 2
    assert 1 <= len(said["machine"]) <= 3


def lines(runs: DisturbedRuns, name: str) -> list[str]:
    """Those of a warning or an error, but for the one that says that the connection was lost."""
    found = runs.fleet.log(name).read_text().splitlines()
    return [line for line in found if (" WARNING " in line or " ERROR " in line) and "broker lost" not in line]
