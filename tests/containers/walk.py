"""What an operator does with a fleet in containers, and what happens to it, from a fresh clone to a published dataset."""

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow.dataset as ds

from containers.engine import Engine
from containers.machine import Machine
from containers.report import say
from shardsift.producer.local.demo_data import write_shards
from support.pages import blocks_of
from support.waiting import wait_until

TOKEN = "hf_thetokenoftheshell"
ADDRESS = "10.77.0.5"  # of the first machine, in the private network of both
SHARDS = 8
SCORING_SECONDS = 240.0  # of the whole run on one worker; long enough that every step finds it unfinished
_GONE_SECONDS = 10.0  # README promises that a stopped worker ends within this time
_CLIENT_SECONDS = 5.0  # of `docker compose` itself, on a busy machine

# Texts of README's block, and their replacements on this machine, which has no GPU, no Hub and a small model. With one
# thread, the speed depends less on other programs on the machine.
INSTEAD = {
    "HF_TOKEN=hf_your_token": f"HF_TOKEN={TOKEN}",
    "echo COMPOSE_PROFILES=gpu": r"printf 'COMPOSE_PROFILES=cpu\nSHARDSIFT_THREADS=1\n'",
    "--crawl CC-MAIN-2024-10": "--input './data/shards/*.parquet' --output ./data/kept --model ./data/model --min-score 3",
}


def walk(engine: Engine, source: Path, folder: Path) -> None:
    engine.clear()
    first = Machine(engine, source, folder / "first")
    steps = {
        "README's fleet, line by line, in a fresh clone": lambda: _type_readme(first),
        "no secret shows, and Flower asks for its password": lambda: _check_secrets(engine, first),
        "a worker stops in the middle of a shard, and starts": lambda: _stop_and_start(first),
        "Redis restarts in the middle of a shard": lambda: _restart_redis(first),
        "down and up in the middle of a shard": lambda: _down_and_up(first),
        "a second machine joins, works alone, and leaves": lambda: _join_and_leave(engine, source, first),
        "the service of the GPUs scores, without a GPU": lambda: _score_with_the_gpu_image(first),
        "Prometheus of the profile monitoring has what the finalizer serves": lambda: _monitor(engine, first),
        "the run goes on to its end, and is published whole": lambda: _check_published(first),
        "what `worker tune` finds is kept": lambda: _tune(first),
        "down leaves no container": lambda: _down(first),
    }
    try:
        for what, step in steps.items():
            say(f"==> {what}")
            step()
    except BaseException:
        say(first.run("docker compose logs --tail 15; docker ps --all", codes=(0, 1)))
        raise
    finally:
        engine.clear()


def _type_readme(machine: Machine) -> None:
    for line in readme_lines():
        machine.type(line, codes=(0, 3) if " status" in line else (0,))
        if line.startswith("docker compose up"):
            _fill_data(machine)
    assert machine.status()["counts"]["shards"] == SHARDS


def readme_lines() -> list[str]:
    """Return the commands of README's fleet, with this machine's replacements. Fails if README lacks a replaced text."""
    [block] = [block.text for block in blocks_of("README.md") if "docker compose up -d" in block.text]
    for text, other in INSTEAD.items():
        assert text in block, f"README does not say {text!r} any more"
        block = block.replace(text, other)
    return [line.partition("  #")[0].rstrip() for line in block.splitlines()]


def _fill_data(machine: Machine) -> None:
    """Create input and model in the folder that Compose and `init` have made for the containers' user."""
    data = machine.folder / "data"
    assert (data.stat().st_uid, data.stat().st_gid) == (1000, 1000)
    trial = write_shards(machine.folder.parent / "trial", shards=1, rows=32, seed=1)[0]
    rows_per_second = _make_model(data / "model", trial)
    rows = max(10, round(rows_per_second * SCORING_SECONDS / SHARDS))
    write_shards(data / "shards", shards=SHARDS, rows=rows, seed=1)
    say(f"    (./data/model and {SHARDS} shards of {rows} rows, at {rows_per_second:.1f} rows/s)")
    for path in data.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _make_model(folder: Path, texts: Path) -> float:
    command = [sys.executable, "-m", "containers.small_model", folder, texts]
    return float(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)


def _check_secrets(engine: Engine, machine: Machine) -> None:
    password = machine.run("docker compose exec -T redis cat /run/secrets/redis/password").strip()
    login = machine.run("docker compose exec -T flower cat /run/secrets/flower/login").strip()
    shown = engine.docker("inspect", *sorted(machine.containers())) + machine.run("docker compose config")
    processes = subprocess.run(
        engine.in_processes("ps", "-eo", "args"), capture_output=True, text=True, check=True
    ).stdout

    assert machine.run("docker compose exec -T finalizer cat /run/secrets/tokens/hf_token").strip() == TOKEN
    machine.run("docker compose exec -T flower cat /run/secrets/tokens/hf_token", codes=(1,))
    assert [secret for secret in (password, login, TOKEN) if secret in shown or secret in processes] == []
    assert _flower(engine) == "401"
    assert _flower(engine, "--user", login) == "200"


def _flower(engine: Engine, *options: str) -> str:
    """Request a page of Flower from this machine. Returns the HTTP status."""
    command = ["curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}", *options]
    command.append("http://127.0.0.1:5555/workers")
    return subprocess.run(engine.in_network(*command), capture_output=True, text=True, check=True).stdout


def _stop_and_start(machine: Machine) -> None:
    _wait_for_rows(machine)
    _stop_worker(machine)
    assert machine.status()["counts"]["running"] == 0
    machine.type("docker compose start worker-cpu")


def _stop_worker(machine: Machine) -> None:
    began = time.monotonic()
    machine.type("docker compose stop worker-cpu")
    took = time.monotonic() - began
    assert took < _GONE_SECONDS + _CLIENT_SECONDS, f"it took {took:.1f} s"


def _restart_redis(machine: Machine) -> None:
    _wait_for_rows(machine)
    machine.type("docker compose restart redis")
    _wait_for_rows(machine)


def _down_and_up(machine: Machine) -> None:
    before = _wait_for_rows(machine)
    _down(machine)
    machine.type("docker compose up -d")
    after = machine.wait_for(lambda status: True, "the fleet to answer")
    assert after["counts"]["done"] >= before["counts"]["done"]
    _wait_for_rows(machine)


def _down(machine: Machine) -> None:
    machine.type("docker compose down")
    assert machine.containers() == set(), "down leaves containers"


def _join_and_leave(engine: Engine, source: Path, first: Machine) -> None:
    subprocess.run(engine.in_network("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"), check=True)
    first.type(
        f"echo COMPOSE_FILE=docker-compose.yml:ops/compose/private-network.yml >> .env; echo REDIS_BIND_ADDRESS={ADDRESS} >> .env"
    )
    first.type("docker compose up -d")
    first.type("docker compose up -d")  # a later command does not take the port away
    assert first.run("docker compose port redis 6379").strip() == f"{ADDRESS}:6379"

    _stop_worker(first)  # what is scored from here on is the second machine's work
    second = Machine(engine, source, first.folder.with_name("second"), project="second")
    (second.folder / "data").symlink_to(first.folder / "data")  # a file system that both machines mount
    second.type(
        "printf 'COMPOSE_FILE=docker-compose.yml:ops/compose/join.yml\\nCOMPOSE_PROFILES=cpu\\nSHARDSIFT_THREADS=1\\n' > .env"
    )
    second.type(f"echo REDIS_URL=redis://{ADDRESS}:6379/0 >> .env")
    refused = second.type("docker compose up -d; docker compose logs init")
    assert "Set REDIS_PASSWORD too" in refused
    password = first.run("docker compose exec -T redis cat /run/secrets/redis/password").strip()
    second.run(f"export REDIS_PASSWORD={shlex.quote(password)}")
    second.type("docker compose up -d")
    assert second.containers() == {"second-init-1", "second-worker-cpu-1"}
    _wait_for_rows(first)
    began = time.monotonic()
    _down(second)
    assert time.monotonic() - began < _GONE_SECONDS + 2 * _CLIENT_SECONDS
    assert first.status()["counts"]["running"] == 0
    first.type("docker compose start worker-cpu")


def _score_with_the_gpu_image(machine: Machine) -> None:
    """Run the GPU service of docker-compose.yml without its devices, because this machine may have no GPU."""
    (machine.folder / "no-devices.yml").write_text("services: {worker-gpu: {deploy: !reset null}}\n")
    files = "docker compose -f docker-compose.yml -f no-devices.yml --profile gpu"
    _stop_worker(machine)
    machine.type(f"{files} up -d --no-build worker-gpu")
    _wait_for_rows(machine)
    machine.type(f"{files} rm --stop --force worker-gpu")
    assert machine.status()["counts"]["running"] == 0
    machine.type("docker compose start worker-cpu")


def _monitor(engine: Engine, machine: Machine) -> None:
    machine.type("docker compose --profile monitoring up -d --no-build prometheus")
    wait_until(
        lambda: (
            _measured(engine, "up{job='shardsift'}") == [1.0]
            and sum(_measured(engine, "shardsift_rows_scored_total")) > 0
        ),
        description="Prometheus to have rows",
        seconds=120,
    )
    machine.type("docker compose --profile monitoring rm --stop --force prometheus")


def _measured(engine: Engine, query: str) -> list[float]:
    address = f"http://127.0.0.1:9090/api/v1/query?{urlencode({'query': query})}"
    asked = subprocess.run(
        engine.in_network("curl", "--silent", "--fail", address), capture_output=True, text=True, check=False
    ).stdout
    found = json.loads(asked)["data"]["result"] if asked else []
    return [float(series["value"][1]) for series in found]


def _wait_for_rows(machine: Machine) -> dict[str, Any]:
    """Return the status once a worker has scored more rows and is in the middle of a shard."""
    before = machine.wait_for(lambda status: True, "the ledger to answer")["pace"]["rows"]
    found = machine.wait_for(
        lambda status: status["pace"]["rows"] > before and status["counts"]["running"] > 0, "more rows to be scored"
    )
    assert found["counts"]["queued"] > 0, "the run is nearly over; it needs more rows"
    return found


def _check_published(machine: Machine) -> None:
    machine.wait_for(lambda status: status["state"] == "published", "the run to be published", seconds=1200)
    machine.type("docker compose run --rm producer status")
    said = machine.type("docker compose run --rm producer verify ./data/kept --input './data/shards/*.parquet'")
    assert "sound" in said
    scores = ds.dataset(machine.folder / "data/kept/scores").to_table(columns=["shard", "row", "error"])
    rows = set(zip(scores["shard"].to_pylist(), scores["row"].to_pylist(), strict=True))
    assert scores.num_rows == len(rows) == ds.dataset(machine.folder / "data/shards").count_rows()
    assert scores["error"].null_count == scores.num_rows


def _tune(machine: Machine) -> None:
    machine.type(
        "docker compose run --rm worker-cpu worker tune --model ./data/model --rows 16 --budgets 512,1024 "
        "--repeats 1 --output none"
    )
    assert machine.run("docker compose run --rm worker-cpu find /state -name '*.json'").strip()
