"""Workers send a trace of each shard to an OpenTelemetry collector if they are told to, and never wait for it."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fleet.errors import ShardError, UsageError
from fleet.ledger import Claim
from fleet.settings import Settings
from support.fleet import Fleet
from support.injected_faults import STAND_IN, InjectedFaults
from support.otlp import Collector, collector
from support.outputs import published_rows
from support.ports import unused_port
from support.records import a_shard, a_spec
from support.waiting import wait_until
from worker.service.steps import Steps
from worker.service.traces import open_traces

STEPS = ["claim", "score", "stage", "record"]


@pytest.fixture
def traces() -> Iterator[Collector]:
    with collector() as found:
        yield found


@pytest.fixture
def run_id(fleet: Fleet, faults: InjectedFaults, shards: Path, tiny_model: Path, tmp_path: Path) -> str:
    """A run of two shards of 12 rows, whose workers load no model and take a second for each."""
    faults.use_stand_in(seconds_a_batch=0.3)
    fleet.environment |= {**faults.environment, "SHARDSIFT_DTYPE": "float32"}
    what = ("--input", shards, "--model", tiny_model, "--scorer", STAND_IN, "--dtype", "float32")
    done = fleet.call_producer("enqueue", *what, "--output", tmp_path / "out", "--limit-shards", "2")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def finish(fleet: Fleet, run_id: str, model: Path, environment: dict[str, str], *, name: str = "w1") -> float:
    """Score and publish the run. Returns the seconds that the worker took to stop."""
    with fleet.finalizer(), fleet.worker(model, name=name, environment=environment) as worker:
        wait_until(lambda: fleet.ledger.publication(run_id), description="the run is published", seconds=180)
        begun = time.monotonic()
        worker.terminate()
        worker.wait(timeout=30)
    return time.monotonic() - begun


def test_each_shard_has_a_trace_with_its_steps(fleet: Fleet, run_id: str, traces: Collector, tiny_model: Path) -> None:
    finish(fleet, run_id, tiny_model, traces.environment)

    attempts = traces.named("attempt")
    assert len({attempt.trace_id for attempt in attempts}) == len(attempts) == 2
    for attempt, shard in zip(
        attempts, sorted(receipt.shard for receipt in fleet.ledger.receipts(run_id)), strict=True
    ):
        steps = traces.within(attempt)
        told = attempt.attributes
        assert told["shardsift.worker"].startswith("w1@")
        assert {name.removeprefix("shardsift."): value for name, value in told.items() if "worker" not in name} == {
            "run_id": run_id,
            "shard": shard,
            "attempt": 1,
            "rows": 12,
            "tokens": sum(
                receipt.provenance.tokens for receipt in fleet.ledger.receipts(run_id) if receipt.shard == shard
            ),
            "outcome": "done",
        }
        assert sorted(steps, key=lambda name: steps[name].begun_at) == STEPS
        assert {step.trace_id for step in steps.values()} == {attempt.trace_id}
        assert sum(step.seconds for step in steps.values()) == pytest.approx(attempt.seconds, abs=0.01)
        spent = {name: value for name, value in steps["score"].attributes.items() if name.endswith("_seconds")}
        assert spent["shardsift.device_seconds"] > 0.5
        assert sum(spent.values()) == pytest.approx(steps["score"].seconds + steps["stage"].seconds, abs=0.2)
    assert {span.service for span in traces.spans} == {"shardsift-worker"}


@pytest.mark.faults
def test_attempts_of_two_workers_at_a_shard_are_in_one_trace(
    fleet: Fleet, faults: InjectedFaults, run_id: str, traces: Collector, tiny_model: Path
) -> None:
    faults.use_stand_in(seconds_a_batch=1.5)  # time to stop the first worker in the middle of a shard
    fleet.environment |= {**faults.environment, "SHARDSIFT_LEASE_SECONDS": "4"}
    environment = {**traces.environment, "OTEL_SERVICE_NAME": "gpu-box"}
    with fleet.worker(tiny_model, name="first", environment=environment) as first:
        wait_until(lambda: fleet.ledger.counts(run_id).rows_scored, description="it scores rows", seconds=120)
        first.terminate()
        first.wait(timeout=30)

    finish(fleet, run_id, tiny_model, environment, name="second")

    stopped = next(one for one in traces.named("attempt") if one.attributes["shardsift.outcome"] == "stopped")
    both = [one for one in traces.named("attempt") if one.trace_id == stopped.trace_id]
    assert [one.attributes["shardsift.outcome"] for one in both] == ["stopped", "done"]
    assert [one.attributes["shardsift.worker"].partition("@")[0] for one in both] == ["first", "second"]
    assert {span.service for span in traces.spans} == {"gpu-box"}


@pytest.mark.slow
def test_the_trace_of_a_failed_shard_has_its_error(
    fleet: Fleet, run_id: str, traces: Collector, tiny_model: Path, shards: Path, tmp_path: Path
) -> None:
    fleet.ledger.cancel(run_id)
    (tmp_path / "in").mkdir()
    broken = tmp_path / "in" / "000_00000.parquet"
    broken.write_bytes(next(shards.glob("*.parquet")).read_bytes())
    what = ("--input", broken.parent, "--model", tiny_model, "--scorer", STAND_IN, "--dtype", "float32")
    run_id = fleet.call_producer("enqueue", *what, "--output", tmp_path / "other").stdout.strip()
    broken.write_bytes(b"PAR1 not really")

    with fleet.worker(tiny_model, environment=traces.environment) as worker:
        wait_until(lambda: fleet.ledger.counts(run_id).failed, description="the shard fails", seconds=120)
        worker.terminate()
        worker.wait(timeout=30)

    (attempt,) = traces.named("attempt")
    (failure,) = fleet.ledger.failures(run_id)
    assert attempt.attributes["shardsift.outcome"] == "failed"
    assert attempt.error == failure.error


def test_a_trace_holds_no_secrets(traces: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", traces.environment["OTEL_EXPORTER_OTLP_ENDPOINT"])
    claim = Claim(run_id="r", shard=a_shard("a"), spec=a_spec(), token="1-a", attempt=1)
    steps = Steps(asked_at=time.time())
    steps.end("failed", ShardError("No answer from https://me:secret@host/x?X-Amz-Signature=5eb63"))

    sending = open_traces(Settings(traces=True))
    sending.send(claim, steps, worker="w1")
    sending.close()

    (attempt,) = traces.named("attempt")
    assert attempt.error == "No answer from https://***@host/x?***"
    assert list(traces.within(attempt)) == ["claim"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(False, id="no collector", marks=pytest.mark.faults),
        pytest.param(True, id="a collector that accepts and never answers", marks=pytest.mark.slow),
    ],
)
def test_a_run_does_not_wait_for_a_collector(
    fleet: Fleet, run_id: str, tiny_model: Path, tmp_path: Path, answers: bool
) -> None:
    with closing(socket.socket()) as deaf:
        port = unused_port()
        if answers:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen()
            port = deaf.getsockname()[1]
        environment = Collector(port=port).environment | {"OTEL_BSP_SCHEDULE_DELAY": "100"}

        stop_seconds = finish(fleet, run_id, tiny_model, environment)

    assert len(published_rows(tmp_path / "out", "scores")) == 24
    assert [shard.provenance.attempt for shard in fleet.ledger.receipts(run_id)] == [1, 1]
    assert all(shard.provenance.seconds["stage"] < 1 for shard in fleet.ledger.receipts(run_id))
    assert stop_seconds < 10
    log = fleet.log("w1").read_text()
    assert "Traceback" not in log
    assert log.count("does not take traces") <= 1


def test_the_log_says_that_traces_are_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{unused_port()}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    claim = Claim(run_id="r", shard=a_shard("a"), spec=a_spec(), token="1-a", attempt=1)

    sending = open_traces(Settings(traces=True))
    sending.send(claim, Steps(asked_at=time.time()), worker="w1")
    wait_until(lambda: "Check OTEL_EXPORTER_OTLP_ENDPOINT" in caplog.text, description="the log says so", seconds=30)
    sending.close()

    assert [record.name for record in caplog.records if "race" in record.message] == ["worker.service.otel"]


def test_without_the_extra_a_worker_that_should_send_traces_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ["opentelemetry", *(name for name in sys.modules if name.startswith("opentelemetry."))]:
        monkeypatch.setitem(sys.modules, module, None)  # a module that is loaded is found without its package
    monkeypatch.delitem(sys.modules, "worker.service.otel", raising=False)

    with pytest.raises(UsageError, match=r"pip install 'shardsift\[otel\]'"):
        open_traces(Settings(traces=True))


def test_a_worker_without_traces_imports_nothing_that_sends_them() -> None:
    """redis-py imports a part of OpenTelemetry if it is installed."""
    code = (
        "import sys; from worker.service import task; from worker.service.traces import open_traces; "
        "from fleet.settings import Settings; open_traces(Settings()).close(); "
        "sending = ('opentelemetry.exporter', 'opentelemetry.sdk.trace', 'google'); "
        "sys.exit(', '.join(name for name in sys.modules if name.startswith(sending)) or 0)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
