"""The metrics that a finalizer serves are what the ledger holds, in Prometheus' own format."""

import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger, Publication
from shardsift.fleet.presence.announcements import announce
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.receipt import AttemptReport
from shardsift.producer.status.metrics import FleetCollector, serve_metrics
from support.fleet import Fleet
from support.golden import check_golden
from support.ledger_states import claimed
from support.ports import unused_port
from support.records import a_receipt, a_shard, a_spec, a_worker
from support.redis_servers import redis_server
from support.waiting import wait_until
from support.watched_run import A, B, WatchedRun, clocked_ledger

SPEC = a_spec()
RUN = SPEC.run_id
GPU = AttemptReport(
    device="NVIDIA H100", rows_per_second=1, rows_written=0, rows_kept=0, tokens=1, seconds={}, busy_share=0.9
)


def scraped(ledger: Ledger) -> dict[str, float]:
    """The samples, such as `shardsift_run_paused{run="RUN"}`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector(ledger))
    return samples_of(generate_latest(registry).decode())


def samples_of(text: str) -> dict[str, float]:
    samples = (line.rpartition(" ") for line in text.replace(RUN, "RUN").splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


@pytest.fixture
def run(redis_url: str) -> Iterator[WatchedRun]:
    with clocked_ledger(redis_url) as ledger:
        yield WatchedRun(ledger)


def test_a_run_in_progress_is_told_by_shards_rows_time_and_workers_that_hang(
    run: WatchedRun,
) -> None:
    run.add_shards(*"cdefg")
    first = run.claim()
    run.passes(10)
    counts = {"rows_in": 100, "rows_kept": 60, "rows_dropped": 39, "rows_errored": 1}
    run.ledger.complete(first, a_receipt(RUN, A, **counts))
    reports = [
        replace(GPU, peak_share=0.3),
        replace(GPU, peak_share=0.5, idle_seconds=400.0),
        GPU,
        replace(GPU, device="cpu", busy_share=None),
        replace(GPU, idle_seconds=400.0),  # of a second shard of the worker that hangs
    ]
    for shard, report, worker in zip("cdefg", reports, "abcdb", strict=True):
        run.ledger.renew(run.claim(shard, owner=f"w{worker}"), rows=10, report=report)
    run.worker(activity="busy", device="cuda", run_id=RUN)
    run.machine(free=0)

    found = scraped(run.ledger)

    assert found.pop("shardsift_redis_memory_bytes") > 1 << 20
    check_golden("metrics", "a run in progress", "".join(f"{name} {value:g}\n" for name, value in found.items()))


def test_a_published_run_and_a_failed_publication_are_told_and_old_finished_runs_left_out(ledger: Ledger) -> None:
    ids = []
    for number in range(25):
        spec = replace(SPEC, input_revision=str(number))
        ids.append(spec.run_id)
        ledger.create_run(spec, [a_shard("a")], now=float(number))
        if number:  # the oldest goes on
            ledger.complete(claimed(ledger, spec.run_id), a_receipt(spec.run_id, a_shard("a")))
            ledger.record_publication(spec.run_id, Publication(uri="memory://out", commit="", shards=1))
    ledger.record_publish_error(ids[0], "the Hub is away", is_permanent=False)

    found = scraped(ledger)

    for name, of_oldest, of_others in (("published", 0, 1), ("publish_error", 1, 0)):
        told = {run: found.get(f'shardsift_run_{name}{{run="{run}"}}') for run in ids}
        assert told == dict.fromkeys(ids) | {ids[0]: of_oldest} | dict.fromkeys(ids[-20:], of_others)


def test_a_paused_run_is_told_and_is_not_idle(run: WatchedRun) -> None:
    run.ledger.renew(run.claim(), rows=5)
    run.passes(10)
    before = scraped(run.ledger)

    run.ledger.pause(RUN)

    found = scraped(run.ledger)
    names = ('shardsift_run_paused{run="RUN"}', 'shardsift_run_idle_seconds{run="RUN"}', "shardsift_open_shards")
    assert [[samples.get(name) for name in names] for samples in (before, found)] == [[0, 10, 2], [1, None, 0]]


def test_a_stopping_worker_serves_no_queue(run: WatchedRun) -> None:
    run.worker(activity="stopping")

    assert scraped(run.ledger)[f'shardsift_queue_workers{{queue="{SPEC.queue}"}}'] == 0


def test_failed_attempts_count_until_a_shard_is_done_and_a_run_whose_shards_are_done_is_not_idle(
    run: WatchedRun,
) -> None:
    run.try_later(B.name, "no space left")
    run.ledger.record_crash(run.claim(), "a bug", "")
    failing = scraped(run.ledger)
    run.finish(A.name, B.name)

    done = scraped(run.ledger)

    assert [found['shardsift_run_failed_attempts{run="RUN"}'] for found in (failing, done)] == [2, 0]
    assert 'shardsift_run_idle_seconds{run="RUN"}' not in done  # it is published, not scored


def test_without_redis_the_metrics_say_so(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        ledger = Ledger(server.client, Settings())
        server.kill()

        assert scraped(ledger) == {"shardsift_up": 0.0}


def test_a_port_that_is_taken_is_named(ledger: Ledger) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"Cannot serve metrics on 127.0.0.1:{port}: .*SHARDSIFT_METRICS_PORT"):
            serve_metrics(ledger, address="127.0.0.1", port=port)


def test_a_finalizer_serves_them_on_loopback(fleet: Fleet) -> None:
    port = unused_port()
    fleet.ledger.create_run(SPEC, [a_shard("a")], now=0)

    with fleet.finalizer(environment={"SHARDSIFT_METRICS_PORT": str(port)}):
        text = wait_until(lambda: fetched(port), description="it answers", seconds=60)

    assert samples_of(text)['shardsift_shards{run="RUN",state="queued"}'] == 1


def fetched(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


@pytest.mark.slow
def test_a_scrape_of_a_large_fleet_takes_less_than_a_second(ledger: Ledger) -> None:
    """1,000 workers and 100,000 shards."""
    ledger.create_run(SPEC, (a_shard(f"{number:06}") for number in range(100_000)), now=0)
    for number in range(1000):
        claimed(ledger, RUN, a_shard(f"{number:06}"))
        announce(ledger.redis, a_worker(name=f"w{number}@host/{number}", run_id=RUN))

    began = time.monotonic()
    found = scraped(ledger)

    assert time.monotonic() - began < 1
    assert found['shardsift_shards{run="RUN",state="running"}'] == 1000
