"""Flower only displays: the work continues if Flower dies, hangs or sends many requests."""

import base64
import os
import signal
import threading
import urllib.request

import pytest

from support.disturbed_runs import DisturbedRuns
from support.ports import unused_port
from support.processes import started
from support.waiting import wait_until

pytestmark = pytest.mark.faults


def test_work_continues_while_flower_floods_hangs_and_dies(runs: DisturbedRuns, undisturbed: dict[str, str]) -> None:
    runs.faults.use_stand_in(seconds_a_batch=0.3)
    environment = {**runs.fleet.environment, "SHARDSIFT_FLOWER_AUTH": "me:a-password"}
    run_id = runs.enqueue()
    address = f"127.0.0.1:{unused_port()}"
    flower = started(
        *("producer", "flower", "--port", address.partition(":")[2]),
        environment=environment,
        log=runs.fleet.log("flower"),
    )

    with runs.finalizer(), runs.worker(), flower as process:
        wait_until(lambda: ask(address, "/healthcheck"), description="Flower answers")
        flood = [threading.Thread(target=ask, args=(address, "/api/workers?refresh=1")) for _ in range(50)]
        for thread in flood:
            thread.start()
        rows = runs.faults.rows_scored()
        runs.wait_for_rows(run_id, rows + 24)
        os.kill(process.pid, signal.SIGSTOP)
        runs.wait_for_rows(run_id, rows + 48)
        os.kill(process.pid, signal.SIGKILL)
        runs.wait_until_published(run_id)
        for thread in flood:
            thread.join()

    assert runs.attempts() == {1}
    runs.check_each_row_scored_once(run_id, undisturbed)


def ask(address: str, path: str) -> bool:
    password = base64.b64encode(b"me:a-password").decode()
    request = urllib.request.Request(f"http://{address}{path}", headers={"Authorization": f"Basic {password}"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return bool(answer.read())
    except OSError:
        return False
