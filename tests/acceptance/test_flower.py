"""Flower during a real run asks for a password, and shows workers, progress, and failures with their traceback."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.fleet import Fleet
from support.injected_faults import STAND_IN, InjectedFaults
from support.ports import unused_port
from support.processes import started
from support.waiting import wait_until

AUTH = "me:a-password"
PORT = unused_port()


@pytest.fixture
def flower(fleet: Fleet, faults: InjectedFaults) -> Iterator[Fleet]:
    """A fleet with Flower. A shard of 12 rows takes its workers about two seconds."""
    faults.use_stand_in(seconds_a_batch=0.5)
    fleet.environment |= faults.environment
    environment = {**fleet.environment, "SHARDSIFT_FLOWER_AUTH": AUTH}
    with started("producer", "flower", "--port", str(PORT), environment=environment, log=fleet.log("flower")):
        wait_until(lambda: get("/healthcheck", auth=None), description="Flower answers", seconds=60)
        yield fleet


def get(path: str, *, auth: str | None = AUTH) -> Any:
    """The answer's JSON or text; None while the port is closed."""
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}")
    if auth:
        request.add_header("Authorization", "Basic " + base64.b64encode(auth.encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read().decode()
    except urllib.error.HTTPError:
        raise
    except OSError:
        return None
    return json.loads(text) if text.startswith(("{", "[")) else text


def worker_name() -> str | None:
    """None until Flower has the worker's answer."""
    return next((name for name in get("/api/workers?refresh=1") if name.startswith("w1@")), None)


def tasks(state: str) -> list[dict[str, Any]]:
    return [task for task in get("/api/tasks").values() if task["state"] == state]


def test_flower_shows_a_run(flower: Fleet, shards: Path, tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    names = ("000_00000", "000_00001", "000_00002")
    for name in names:
        (folder / f"{name}.parquet").write_bytes((shards / f"{name}.parquet").read_bytes())
    arguments = ("--input", folder, "--model", tiny_model, "--scorer", STAND_IN, "--output", tmp_path / "out")
    (folder / "000_00002.parquet").write_bytes(b"not Parquet")
    run_id = flower.call_producer("enqueue", *arguments).stdout.strip()

    with pytest.raises(urllib.error.HTTPError, match="401"):
        get("/api/workers", auth=None)
    with flower.finalizer(), flower.worker(tiny_model, environment={"SHARDSIFT_PROGRESS_SECONDS": "0.2"}):
        running = wait_until(lambda: tasks("PROGRESS"), description="progress shows while a shard runs", seconds=120)
        worker = wait_until(worker_name, description="Flower knows the worker")
        online_while_busy = get("/api/workers?status=1")[worker]
        failed = wait_until(lambda: tasks("FAILURE"), description="the broken shard shows as failed", seconds=120)
        wait_until(lambda: len(tasks("SUCCESS")) >= 2, description="the other shards show as done", seconds=120)

    assert "rows/s" in running[0]["result"]
    assert running[0]["uuid"].startswith(f"{run_id}:000_")
    assert run_id in running[0]["kwargs"]
    assert online_while_busy is True
    assert f"{run_id}:000_00002" in failed[0]["uuid"]
    assert "Traceback" in failed[0]["traceback"]
    assert "not a readable Parquet file" in failed[0]["exception"]


def test_flower_shows_no_password_in_its_arguments(flower: Fleet) -> None:
    import psutil

    arguments = [part for process in psutil.process_iter(["cmdline"]) for part in process.info["cmdline"] or ()]

    assert any("flower" in part for part in arguments)
    assert not any("a-password" in part for part in arguments)
