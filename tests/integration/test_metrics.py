"""The metrics that a finalizer serves are what the ledger holds, in Prometheus' own format."""

import socket
import time
import urllib.request
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger, Publication
from shardsift.fleet.ledger.base import Keys
from shardsift.fleet.presence.announcements import MachineState, announce, announce_machine
from shardsift.fleet.presence.demand import Wanted
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.receipt import AttemptReport
from shardsift.producer.status.metrics import FleetCollector, serve_metrics
from support.fleet import Fleet
from support.ledger_states import claimed
from support.ports import unused_port
from support.records import a_receipt, a_shard, a_spec, a_worker
from support.redis_servers import redis_server
from support.waiting import wait_until

SPEC = a_spec()
RUN = SPEC.run_id
BUSY = a_worker(device="cuda", run_id=RUN)

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples_of(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(ledger: Ledger) -> Samples:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector(ledger))
    return samples_of(generate_latest(registry).decode())


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))


def test_a_run_in_progress_is_told_by_shards_rows_and_time(ledger: Ledger) -> None:
    ledger.create_run(SPEC, [a_shard("a"), a_shard("b"), a_shard("c")], now=0)
    counts = {"rows_in": 100, "rows_kept": 60, "rows_dropped": 39, "rows_errored": 1}
    ledger.complete(claimed(ledger, RUN, a_shard("a")), a_receipt(RUN, a_shard("a"), **counts))
    ledger.renew(claimed(ledger, RUN, a_shard("b")), rows=50)
    announce(ledger.redis, BUSY)
    announce_machine(ledger.redis, MachineState(name="box/12", devices=("0",), free=0, wanted=Wanted()))

    found = scraped(ledger)

    states = ("queued", "running", "done")
    assert [value(found, "shardsift_shards", run=RUN, state=state) for state in states] == [1, 1, 1]
    fates = ("kept", "dropped", "errored")
    assert [value(found, "shardsift_rows_total", run=RUN, fate=fate) for fate in fates] == [60, 39, 1]
    assert value(found, "shardsift_rows_scored_total", run=RUN) == 150
    assert value(found, "shardsift_run_workers", run=RUN) == 1
    assert value(found, "shardsift_run_published", run=RUN) == 0
    assert value(found, "shardsift_run_remaining_seconds", run=RUN) is not None
    assert value(found, "shardsift_run_idle_seconds", run=RUN) == pytest.approx(0, abs=5)
    assert value(found, "shardsift_queue_shards", queue=SPEC.queue, state="queued") == 1
    assert value(found, "shardsift_queue_workers", queue=SPEC.queue) == 1
    assert value(found, "shardsift_open_shards") == 2
    assert value(found, "shardsift_workers", activity="busy", device="cuda") == 1
    assert (value(found, "shardsift_machines"), value(found, "shardsift_free_machines")) == (1, 0)
    assert (value(found, "shardsift_redis_memory_bytes") or 0) > 1 << 20
    assert value(found, "shardsift_up") == 1


def test_the_share_of_the_peak_is_the_mean_of_the_workers_that_know_it_and_those_that_hang_are_counted(
    ledger: Ledger,
) -> None:
    ledger.create_run(SPEC, [a_shard(name) for name in "abcde"], now=0)
    gpu = AttemptReport(
        device="NVIDIA H100", rows_per_second=1, rows_written=0, rows_kept=0, tokens=1, seconds={}, busy_share=0.9
    )
    reports = [
        replace(gpu, peak_share=0.3),
        replace(gpu, peak_share=0.5, idle_seconds=400.0),
        gpu,
        replace(gpu, device="cpu", busy_share=None),
    ]
    reports.append(replace(gpu, idle_seconds=400.0))  # of a second shard of the worker that hangs
    for shard, report, worker in zip("abcde", reports, "abcdb", strict=True):
        ledger.renew(claimed(ledger, RUN, a_shard(shard), owner=f"w{worker}"), rows=1, report=report)

    found = scraped(ledger)

    assert value(found, "shardsift_peak_share", run=RUN, device="NVIDIA H100") == pytest.approx(0.4)
    assert value(found, "shardsift_device_busy_share", run=RUN, device="NVIDIA H100") == pytest.approx(0.9)
    assert value(found, "shardsift_device_memory_share", run=RUN, device="NVIDIA H100") is None
    assert value(found, "shardsift_peak_share", run=RUN, device="cpu") is None
    assert value(found, "shardsift_run_stalled_workers", run=RUN) == 1


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

    shown = {dict(labels)["run"] for name, labels in found if name == "shardsift_run_published"}
    assert shown == {ids[0], *ids[-20:]}
    for name, numbers in (("published", [0, 1]), ("publish_error", [1, 0])):
        assert [value(found, f"shardsift_run_{name}", run=run) for run in (ids[0], ids[-1])] == numbers


def test_a_paused_run_is_told_and_is_not_idle(ledger: Ledger) -> None:
    ledger.create_run(SPEC, [a_shard("a")], now=0)
    ledger.renew(claimed(ledger, RUN), rows=5)
    before = scraped(ledger)

    ledger.pause(RUN)

    found = scraped(ledger)
    assert [value(samples, "shardsift_run_paused", run=RUN) for samples in (before, found)] == [0, 1]
    assert value(before, "shardsift_run_idle_seconds", run=RUN) is not None
    assert value(found, "shardsift_run_idle_seconds", run=RUN) is None
    assert [value(samples, "shardsift_open_shards") for samples in (before, found)] == [1, 0]


def test_a_stopping_worker_serves_no_queue(ledger: Ledger) -> None:
    ledger.create_run(SPEC, [a_shard("a")], now=0)
    announce(ledger.redis, replace(BUSY, activity="stopping"))

    assert value(scraped(ledger), "shardsift_queue_workers", queue=SPEC.queue) == 0


def test_failed_attempts_are_counted_until_a_shard_is_done_and_a_run_whose_shards_are_done_is_not_idle(
    ledger: Ledger,
) -> None:
    a, b = a_shard("a"), a_shard("b")
    ledger.create_run(SPEC, [a, b], now=0)
    ledger.retry_later(claimed(ledger, RUN, b), "no space left", "")
    ledger.record_crash(claimed(ledger, RUN, a), "a bug", "")
    failing = scraped(ledger)
    ledger.redis.zadd(Keys(RUN).waiting, {"a": 1, "b": 1})
    for shard in (a, b):
        ledger.complete(claimed(ledger, RUN, shard), a_receipt(RUN, shard))

    done = scraped(ledger)

    assert [value(found, "shardsift_run_failed_attempts", run=RUN) for found in (failing, done)] == [2, 0]
    assert value(done, "shardsift_run_idle_seconds", run=RUN) is None  # it is published, not scored


def test_without_redis_the_metrics_say_so(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        ledger = Ledger(server.client, Settings())
        server.kill()

        assert scraped(ledger) == {("shardsift_up", frozenset()): 0.0}


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

    assert value(samples_of(text), "shardsift_shards", run=RUN, state="queued") == 1


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
        announce(ledger.redis, replace(BUSY, name=f"w{number}@host/{number}"))

    began = time.monotonic()
    found = scraped(ledger)

    assert time.monotonic() - began < 1
    assert value(found, "shardsift_shards", run=RUN, state="running") == 1000
