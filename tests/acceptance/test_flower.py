"""Flower asks for a password, and shows workers, progress, failures with their traceback, and runs as the ledger has them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from support.crawls import copy_shards
from support.fleet import Fleet
from support.flower import LOGIN, flower_of
from support.injected_faults import STAND_IN, InjectedFaults
from support.ledger_states import claimed
from support.ports import unused_port
from support.records import a_shard, a_spec
from support.redis_servers import moved, redis_server
from support.waiting import wait_until

PORT = unused_port()


@pytest.fixture
def flower(fleet: Fleet, faults: InjectedFaults) -> Iterator[Fleet]:
    """A fleet with Flower, on a host of another Flower. A shard of 12 rows takes its workers about two seconds."""
    faults.use_stand_in(seconds_a_batch=0.5)
    others = {"FLOWER_PORT": "tcp://10.0.0.1:5555", "FLOWER_BASIC_AUTH": "you:b", "FLOWER_UNAUTHENTICATED_API": "1"}
    fleet.environment |= faults.environment | others
    with flower_of(fleet, PORT):
        yield fleet


def request(path: str, *, method: str = "GET", auth: str | None = LOGIN) -> httpx2.Response:
    login = httpx2.BasicAuth(*auth.split(":")) if auth else None
    return httpx2.request(method, f"http://127.0.0.1:{PORT}{path}", auth=login, timeout=10)


def get(path: str) -> Any:
    """The answer's JSON."""
    return request(path).raise_for_status().json()


def worker_name() -> str | None:
    """None until Flower has the worker's answer."""
    return next((name for name in get("/api/workers?refresh=1") if name.startswith("w1@")), None)


def run_over(run_id: str) -> dict[str, Any] | None:
    """What the page of a run shows, when no shard is open any more."""
    run: dict[str, Any] = get(f"/api/runs/{run_id}")
    return run if run["counts"]["done"] + run["counts"]["failed"] == run["counts"]["shards"] else None


def tasks(state: str) -> list[dict[str, Any]]:
    return [task for task in get("/api/tasks").values() if task["state"] == state]


def test_flower_shows_a_run_and_its_pages_lead_to_it_and_no_argument_shows_its_password(
    flower: Fleet, shards: Path, tiny_model: Path, tmp_path: Path
) -> None:
    folder = copy_shards(shards, tmp_path / "shards", count=3)
    arguments = ("--input", folder, "--model", tiny_model, "--scorer", STAND_IN, "--output", tmp_path / "out")
    (folder / "000_00002.parquet").write_bytes(b"not Parquet")
    run_id = flower.enqueue(*arguments)

    for path in ("/api/workers", *(f"{api}/runs{run}" for api in ("", "/api") for run in ("", f"/{run_id}"))):
        assert request(path, auth=None).status_code == 401
    assert request(f"/api/runs/{run_id}/rows", auth=None).status_code == 401
    for path in ("/workers", "/tasks", "/broker"):
        page = request(path).text
        assert "Flower counts Celery tasks" in page
        assert page.count('href="/runs"') == 2  # in the navigation, and in the note
    arguments = [part for process in psutil.process_iter(["cmdline"]) for part in process.info["cmdline"] or ()]
    assert any("flower" in part for part in arguments)
    assert not any("a-password" in part for part in arguments)
    with flower.finalizer(), flower.worker(tiny_model, environment={"SHARDSIFT_LEASE_SECONDS": "1"}):
        running = wait_until(lambda: tasks("STARTED"), description="a shard shows while it runs", seconds=120)
        worker = wait_until(worker_name, description="Flower knows the worker")
        online_while_busy = get("/api/workers?status=1")[worker]
        failed = wait_until(lambda: tasks("FAILURE"), description="the broken shard shows as failed", seconds=120)
        wait_until(lambda: len(tasks("SUCCESS")) >= 2, description="the other shards show as done", seconds=120)
        on_page = wait_until(lambda: run_over(run_id), description="the page of the run shows that it is over")
    told = json.loads(flower.call_producer("status", run_id, "--json").stdout)

    assert running[0]["uuid"].startswith(f"{run_id}:000_")
    assert run_id in running[0]["kwargs"]
    assert online_while_busy is True
    assert f"{run_id}:000_00002" in failed[0]["uuid"]
    assert "Traceback" in failed[0]["traceback"]
    assert "not a readable Parquet file" in failed[0]["exception"]
    of_the_run = ("run_id", "output_uri", "queue", "counts", "complete", "cancelled", "failures", "state", "running")
    assert {name: on_page[name] for name in of_the_run} == {name: told[name] for name in of_the_run}
    assert "Traceback" in on_page["failures"][0]["traceback"]
    assert f"After fixing the cause, try it again: producer retry {run_id}" in on_page["headline"]


def test_the_pages_say_what_is_missing_and_run_nothing_that_data_holds(fleet: Fleet, tmp_path: Path) -> None:
    markup = "<script>alert(1)</script>"
    spec, shard = a_spec(), a_shard("a")
    with redis_server(tmp_path) as server:
        on_server = moved(fleet, server.url)
        ledger = on_server.ledger
        ledger.create_run(spec, [shard], now=1.0)
        ledger.fail(claimed(ledger, spec.run_id, shard, owner=markup), markup, markup)
        with flower_of(on_server, PORT):
            page = request(f"/runs/{spec.run_id}")
            json_of_run = request(f"/api/runs/{spec.run_id}")
            unknown = request("/runs/%3Cscript%3Ealert(1)%3C%2Fscript%3E")
            posted = request("/api/runs", method="POST")
            server.kill()
            wait_until(lambda: request(f"/api/runs/{spec.run_id}").is_error, description="the page notices")
            without_redis = request(f"/api/runs/{spec.run_id}")
            page_without_redis = request(f"/runs/{spec.run_id}")

    assert markup not in page.text
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    assert json_of_run.headers["Content-Type"].startswith("application/json")
    assert json_of_run.json()["failures"][0]["error"] == markup
    assert (unknown.status_code, posted.status_code, without_redis.status_code) == (404, 405, 503)
    assert "has no run" in unknown.text
    assert markup not in unknown.text
    assert without_redis.json()["error"].startswith("Redis does not answer")
    assert page_without_redis.text == page.text
