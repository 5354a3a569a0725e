"""`producer demand` counts what an autoscaler needs: open shards, running ones too, and the workers that serve them."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.presence.announcements import announce
from shardsift.producer.demand import DemandServer, demand_json, queue_demands
from support.injected_faults import PYTHONPATH
from support.ledger_states import claimed
from support.ports import served_in_background, unused_port
from support.processes import call_command, started
from support.records import a_receipt, a_shard, a_spec, a_worker
from support.waiting import wait_until

SPEC = a_spec()
SHARDS = [a_shard(f"crawl/{number}") for number in range(5)]
WORKER = a_worker(name="gpu0@host/7")


@pytest.fixture
def run(ledger: Ledger) -> str:
    ledger.create_run(SPEC, SHARDS, now=0)
    return SPEC.run_id


def demanded(redis_url: str, *arguments: str) -> Any:
    done = call_command("producer", "demand", "--json", *arguments, environment={"REDIS_URL": redis_url})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_running_shards_count_and_finished_ones_do_not(ledger: Ledger, run: str, redis_url: str) -> None:
    ledger.complete(claimed(ledger, run, SHARDS[0]), a_receipt(run, SHARDS[0]))
    claimed(ledger, run, SHARDS[1])
    announce(ledger.redis, WORKER)

    answer = demanded(redis_url)

    assert [answer[name] for name in ("queued", "running", "workers", "wanted")] == [3, 1, 1, 4]
    (queue,) = answer["queues"]
    assert queue["queue"] == SPEC.queue
    assert queue["models"] == [SPEC.scorings[0].model.name]
    assert queue["dtype"] == SPEC.scorings[0].dtype


@pytest.mark.parametrize(("shards_per_worker", "wanted"), [(1, 5), (2, 3), (5, 1), (100, 1)])
def test_a_worker_is_wanted_for_every_few_shards_rounded_up(
    ledger: Ledger, run: str, shards_per_worker: int, wanted: int
) -> None:
    assert demand_json(queue_demands(ledger, shards_per_worker=shards_per_worker))["wanted"] == wanted


@pytest.mark.parametrize("how", ["cancel", "pause"])
def test_a_run_that_was_stopped_wants_none(ledger: Ledger, run: str, how: str) -> None:
    claimed(ledger, run, SHARDS[0])
    getattr(ledger, how)(run)

    answer = demand_json(queue_demands(ledger, shards_per_worker=1))

    assert answer == {"queued": 0, "running": 0, "workers": 0, "wanted": 0, "queues": []}


def test_each_queue_wants_its_own_workers_and_a_stopping_one_does_not_count(ledger: Ledger, run: str) -> None:
    other = a_spec(dtype="auto")
    ledger.create_run(other, SHARDS[:1], now=1)
    announce(ledger.redis, replace(WORKER, activity="stopping"))
    announce(ledger.redis, replace(WORKER, name="gpu1@host/8", queue=other.queue, activity="loading"))

    demands = queue_demands(ledger, shards_per_worker=2)

    assert [(demand.queue, demand.workers, demand.wanted) for demand in demands] == [
        (SPEC.queue, 0, 3),
        (other.queue, 1, 1),
    ]
    assert demand_json(demands)["wanted"] == 4


def test_the_table_has_a_line_for_each_queue_and_without_one_a_sentence_says_so(
    ledger: Ledger, run: str, redis_url: str
) -> None:
    done = call_command("producer", "demand", environment={"REDIS_URL": redis_url})
    ledger.cancel(run)
    none = call_command("producer", "demand", environment={"REDIS_URL": redis_url})

    heads, line = done.stdout.splitlines()
    assert heads.split() == ["models", "dtype", "queued", "running", "workers", "wanted"]
    assert line.split() == [SPEC.scorings[0].model.name, SPEC.scorings[0].dtype, "5", "0", "0", "5"]
    assert (none.returncode, none.stdout) == (0, "")
    assert none.stderr == "No shard is open: no worker is needed.\n"


# ---- over HTTP -----------------------------------------------------------------------------------------------------


@contextmanager
def served(read: Callable[[], object]) -> Iterator[str]:
    with served_in_background(DemandServer("127.0.0.1", 0, read)) as server:
        yield server.url


def fetched(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:
        assert answer.headers["Content-Type"] == "application/json"
        return json.load(answer)


def lost() -> object:
    raise redis.ConnectionError("it is away")


def test_an_autoscaler_never_takes_an_error_for_a_number() -> None:
    with served(lost) as url, pytest.raises(urllib.error.HTTPError) as refused:
        fetched(url)

    with refused.value as answer:
        assert answer.code == 503
        assert "it is away" in json.load(answer)["error"]


def test_a_port_that_is_taken_is_a_usage_error(ledger: Ledger, redis_url: str) -> None:
    with served(dict) as url:
        port = url.rstrip("/").rpartition(":")[2]
        done = call_command("producer", "demand", "--serve", port, environment={"REDIS_URL": redis_url})

    assert done.returncode == 2
    assert f"Cannot listen on 127.0.0.1:{port}" in done.stderr


def test_the_served_number_follows_the_ledger_and_the_service_ends_on_sigterm(
    ledger: Ledger, run: str, redis_url: str, tmp_path: Path
) -> None:
    port, environment = unused_port(), {"REDIS_URL": redis_url, "PYTHONPATH": PYTHONPATH}

    with started("producer", "demand", "--serve", str(port), environment=environment, log=tmp_path / "log") as service:
        wait_until(lambda: "served at" in (tmp_path / "log").read_text(), description="it listens")
        before = fetched(f"http://127.0.0.1:{port}/")
        ledger.cancel(run)
        after = fetched(f"http://127.0.0.1:{port}/")
        service.terminate()
        service.wait(timeout=5)

    assert (before["wanted"], after["wanted"]) == (len(SHARDS), 0)
    assert service.returncode == 0
