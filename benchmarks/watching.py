"""Watch a large run by `producer status`, /metrics and the Runs page: how fast each answers, and what it costs Redis.

Writes a results file. Example: python -m benchmarks.watching --shards 100000 --workers 1000 --browsers 10
"""

import base64
import gzip
import os
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from benchmarks.ledger.records import fineweb_shards, fineweb_spec, receipt_of
from benchmarks.results_file import provenance_of, write_results
from fleet.ledger import Claim, Ledger
from fleet.ledger.base import Keys
from fleet.presence.announcements import ANNOUNCE_SECONDS, WorkerState, announce
from fleet.process.command_line import own_command
from fleet.process.settings import Settings
from fleet.run.receipt import AttemptReport, Histogram
from fleet.run.spec import RunSpec
from producer.local.redis import embedded_redis
from producer.status import run_status
from producer.status.metrics import serve_metrics

_REPORT = AttemptReport(
    device="NVIDIA H100 80GB HBM3",
    rows_per_second=8123.4,
    rows_written=800_000,
    rows_kept=52_000,
    tokens=365_000_000,
    seconds={"input": 1.2, "tokenize": 3.4, "device": 56.7, "write": 0.8, "stage": 0.0},
    histograms={"score": Histogram(bins_per_unit=4, rows_by_bin=dict.fromkeys(range(-4, 20), 20_000))},
)
_AUTH = "me:a-password"
_EVERY_SECONDS = 2.0  # as the page asks
_PATIENCE_SECONDS = 60
_REPEATS = 10

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@cli.command()
def watching(
    shards: Annotated[int, typer.Option(min=2, help="Half of them done.")] = 100_000,
    workers: Annotated[int, typer.Option(min=1, help="That hold a shard each.")] = 1000,
    browsers: Annotated[int, typer.Option(min=1, help="With the page of the run open.")] = 10,
    seconds: Annotated[float, typer.Option(min=4, help="With the browsers, and as long without them.")] = 60,
    output: Annotated[Path, typer.Option(help="Folder of the results file.")] = Path("benchmarks/results"),
) -> None:
    """Fill a ledger, ask for the state of the run in each way, and let browsers ask for its page every two seconds."""
    found, spec = provenance_of("benchmarks.watching"), fineweb_spec(shards)
    with (
        tempfile.TemporaryDirectory(prefix="shardsift-bench-") as folder,
        embedded_redis(Path(folder) / "redis") as url,
    ):
        ledger = Ledger.connect(Settings(redis_url=url))
        busy = _fill(ledger, spec, shards, workers)
        with _announced(ledger, busy):
            report = {
                "shards": shards,
                "workers": workers,
                "redis_bytes_of_a_worker": _bytes_of(ledger, spec, busy[0]),
                "status": _status_command(ledger, url, spec.run_id),
                "metrics": _metrics(ledger),
                "runs_page": _runs_page(ledger, url, Path(folder), spec.run_id, browsers=browsers, seconds=seconds),
            }
    typer.echo(write_results("watching", found, report, output).read_text())


def _bytes_of(ledger: Ledger, spec: RunSpec, worker: WorkerState) -> int:
    """What a busy worker adds to Redis: its announcement, and the record of its attempt with the report."""
    keys = (f"shardsift:worker:{worker.name}", Keys(spec.run_id).attempts(str(worker.shard)))
    return sum(int(ledger.redis.memory_usage(key) or 0) for key in keys)


def _status_command(ledger: Ledger, redis_url: str, run_id: str) -> dict[str, float]:
    """The whole command with its start, and one redraw of `--watch`."""
    command, environment = own_command("producer", "status", run_id), {**os.environ, "REDIS_URL": redis_url}

    def whole() -> None:
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)

    return {
        "whole_command_seconds": _median_seconds(whole),
        "one_redraw_seconds": _median_seconds(lambda: str(run_status(ledger, run_id))),
        "redis_seconds_of_a_redraw": _redis_seconds_of(ledger, lambda: str(run_status(ledger, run_id))),
    }


def _metrics(ledger: Ledger) -> dict[str, float]:
    """Scraped over HTTP, as by Prometheus."""
    port = _free_port()
    serve_metrics(ledger, address="127.0.0.1", port=port)

    def scrape() -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=_PATIENCE_SECONDS) as answer:
            answer.read()

    return {
        "scrape_seconds": _median_seconds(scrape),
        "redis_seconds_of_a_scrape": _redis_seconds_of(ledger, scrape),
    }


def _median_seconds(do: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        do()
        times.append(time.perf_counter() - began)
    return round(median(times), 3)


def _redis_seconds_of(ledger: Ledger, do: Callable[[], object]) -> float:
    """That Redis works for it, with what the announcing workers cost meanwhile."""
    before = _redis_seconds(ledger)
    for _ in range(_REPEATS):
        do()
    return round((_redis_seconds(ledger) - before) / _REPEATS, 4)


def _runs_page(
    ledger: Ledger, redis_url: str, folder: Path, run_id: str, *, browsers: int, seconds: float
) -> dict[str, object]:
    with _flower(redis_url, folder) as base:
        without = _redis_share(ledger, seconds)
        page = f"{base}/api/runs/{run_id}"
        first = _timed(page)
        answers, during = _browse(ledger, page, browsers, seconds)
        listed, page_itself = _timed(f"{base}/api/runs"), _timed(f"{base}/runs/{run_id}")
    times = sorted(one.seconds for one in answers)
    return {
        "browsers": browsers,
        "seconds": {
            "the_page": round(page_itself.seconds, 3),
            "first_json": round(first.seconds, 3),
            "json_p50": round(median(times), 3),
            "json_p99": round(times[int(0.99 * (len(times) - 1))], 3),
            "json_max": round(times[-1], 3),
            "list_of_runs": round(listed.seconds, 3),
        },
        "answers": len(times),
        "json_bytes": answers[-1].json_bytes,
        "json_bytes_sent": answers[-1].bytes_sent,
        "share_of_redis": {"without_browsers": round(without, 5), "with_browsers": round(during, 5)},
    }


class _Answer:
    def __init__(self, seconds: float, sent: bytes) -> None:
        self.seconds, self.bytes_sent, self.json_bytes = seconds, len(sent), len(gzip.decompress(sent))


def _fill(ledger: Ledger, spec: RunSpec, shards: int, workers: int) -> list[WorkerState]:
    """Half of the shards are done, and each worker has one of the others."""
    ledger.create_run(spec, fineweb_shards(shards), now=time.time())
    records = list(fineweb_shards(shards))
    done, others = records[: shards // 2], records[shards // 2 :]
    ledger.restore(spec.run_id, (receipt_of(spec.run_id, shard, token="123456-0123456789ab") for shard in done))
    model, busy = spec.scorings[0].model, []
    for number, shard in enumerate(others[:workers]):
        name = f"gpu@gpu-{number:04}.europe-west4-a.c.fleet.internal/4711"
        claim = ledger.claim(spec.run_id, shard.name, name)
        assert isinstance(claim, Claim)
        ledger.renew(claim, rows=1000 * number, report=_REPORT)
        busy.append(
            WorkerState(
                name=name,
                queue=spec.queue,
                model=model.name,
                revision=model.revision,
                dtype="float16",
                activity="busy",
                activity_seconds=5.0,
                device="NVIDIA H100 80GB HBM3",
                run_id=spec.run_id,
                shard=shard.name,
            )
        )
    return busy


@contextmanager
def _announced(ledger: Ledger, workers: list[WorkerState]) -> Iterator[None]:
    """The workers announce themselves, as they do in a fleet."""
    stopped = threading.Event()

    def go_on() -> None:
        while not stopped.is_set():
            for worker in workers:
                announce(ledger.redis, worker)
            stopped.wait(ANNOUNCE_SECONDS)

    with ThreadPoolExecutor(1) as executor:
        announcing = executor.submit(go_on)
        yield
        stopped.set()
        announcing.result()


@contextmanager
def _flower(redis_url: str, folder: Path) -> Iterator[str]:
    port = _free_port()
    environment = {
        **os.environ,
        "REDIS_URL": redis_url,
        "SHARDSIFT_FLOWER_AUTH": _AUTH,
        "SHARDSIFT_STATE_DIR": str(folder / "state"),
    }
    command = own_command("producer", "flower", "--port", str(port))
    flower = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        base, deadline = f"http://127.0.0.1:{port}", time.monotonic() + _PATIENCE_SECONDS
        while not _answers(f"{base}/healthcheck"):
            if time.monotonic() > deadline:
                raise SystemExit("Flower does not answer.")
            time.sleep(0.2)
        yield base
    finally:
        flower.terminate()
        flower.wait()


def _free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def _timed(url: str) -> _Answer:
    login = "Basic " + base64.b64encode(_AUTH.encode()).decode()
    asked = urllib.request.Request(url, headers={"Authorization": login, "Accept-Encoding": "gzip"})
    began = time.perf_counter()
    with urllib.request.urlopen(asked, timeout=_PATIENCE_SECONDS) as answer:
        sent = answer.read()
    seconds = time.perf_counter() - began
    return _Answer(seconds, sent if answer.headers["Content-Encoding"] == "gzip" else gzip.compress(sent))


def _browse(ledger: Ledger, url: str, browsers: int, seconds: float) -> tuple[list[_Answer], float]:
    """What all browsers got, and the share of its time that Redis worked meanwhile."""
    deadline = time.monotonic() + seconds

    def browse(number: int) -> list[_Answer]:
        time.sleep(_EVERY_SECONDS * number / browsers)  # they do not ask at the same moment
        found = []
        while time.monotonic() < deadline:
            found.append(_timed(url))
            time.sleep(_EVERY_SECONDS)
        return found

    with ThreadPoolExecutor(browsers) as executor:
        browsing = [executor.submit(browse, number) for number in range(browsers)]
        share = _redis_share(ledger, seconds)
        return [answer for one in browsing for answer in one.result()], share


def _redis_share(ledger: Ledger, seconds: float) -> float:
    began, worked = time.perf_counter(), _redis_seconds(ledger)
    time.sleep(seconds)
    return (_redis_seconds(ledger) - worked) / (time.perf_counter() - began)


def _redis_seconds(ledger: Ledger) -> float:
    found = ledger.redis.info("cpu")
    return float(found["used_cpu_user"] + found["used_cpu_sys"])


if __name__ == "__main__":
    cli()
