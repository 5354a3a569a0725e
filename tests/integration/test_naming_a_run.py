"""A command finds the run that a person means: by any unique beginning of its id, or because there is only one."""

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from shardsift.fleet.ledger import Ledger, Publication
from shardsift.fleet.ledger.base import RUNS
from shardsift.fleet.run.spec import RunSpec
from support.ledger_states import claimed
from support.processes import call_command
from support.records import a_receipt, a_shard, a_spec

A = a_shard("a")
Call = Callable[..., subprocess.CompletedProcess[str]]


def a_run(ledger: Ledger, crawl: str, state: str = "queued", *, now: float = 0) -> str:
    spec: RunSpec = a_spec(crawl=crawl, output_uri=f"memory://{crawl}")
    ledger.create_run(spec, [A], now=now)
    match state:
        case "published":
            ledger.complete(claimed(ledger, spec.run_id, A), a_receipt(spec.run_id, A))
            ledger.record_publication(spec.run_id, Publication(uri=spec.output_uri, commit="", shards=1))
        case "failed":
            ledger.fail(claimed(ledger, spec.run_id, A), "it is broken", "")
        case "paused":
            ledger.pause(spec.run_id)
        case "cancelled":
            ledger.cancel(spec.run_id)
    return spec.run_id


@pytest.fixture
def call(redis_url: str, tmp_path: Path) -> Call:
    return partial(call_command, "producer", environment={"REDIS_URL": redis_url}, folder=tmp_path)


@pytest.mark.parametrize("command", ["pause", "cancel"])
def test_any_unique_beginning_of_a_run_id_does(ledger: Ledger, call: Call, command: str, tmp_path: Path) -> None:
    run, newer = a_run(ledger, "CC-MAIN-2024-10"), a_run(ledger, "CC-MAIN-2024-18", now=9)
    (tmp_path / "cc-main-2024-10").mkdir()  # such as the input's folder, after which a run is named

    several, none, one = (call(command, beginning) for beginning in ("cc-main", "cc-main-2025", "cc-main-2024-10"))

    assert (several.returncode, none.returncode, one.returncode) == (2, 2, 0)
    assert several.stderr == f"producer: Several runs begin with cc-main: {newer}, {run}. Write more of the id.\n"
    assert "The ledger has no run 'cc-main-2025'" in none.stderr
    assert run in one.stderr


@pytest.mark.parametrize(
    ("command", "state"),
    [
        (("pause",), "queued"),
        (("cancel",), "queued"),
        (("set", "--max-workers", "2"), "queued"),
        (("resume",), "paused"),
        (("retry",), "failed"),
        (("scores",), "published"),
    ],
)
def test_without_a_run_a_command_takes_the_only_one_that_it_fits_or_lists_them(
    ledger: Ledger, call: Call, command: tuple[str, ...], state: str
) -> None:
    a_run(ledger, "CC-MAIN-2023-06", "published" if state != "published" else "failed", now=9)

    none = call(*command)
    run = a_run(ledger, "CC-MAIN-2024-10", state)
    again = a_run(ledger, "CC-MAIN-2024-18", state)
    several = call(*command)
    ledger.redis.zrem(RUNS, again)
    one = call(*command)

    assert (none.returncode, several.returncode) == (2, 2)
    assert "There is no run to" in none.stderr
    assert "Name the run to" in several.stderr
    assert f"{run} ({state})" in several.stderr
    assert f"{again} ({state})" in several.stderr
    assert one.returncode == 0, one.stderr
    assert run in one.stderr + one.stdout


def test_an_empty_id_names_no_run(ledger: Ledger, call: Call) -> None:
    """A script whose variable is not set must not cancel a run."""
    a_run(ledger, "CC-MAIN-2024-10")

    done = call("cancel", "")

    assert (done.returncode, done.stderr) == (2, "producer: The run id is empty. `producer runs` lists the run ids.\n")


@pytest.mark.parametrize("idle", ["published", "failed", "paused", "cancelled"])
def test_a_run_under_way_is_preferred_to_a_newer_one_that_is_idle(ledger: Ledger, call: Call, idle: str) -> None:
    run, newer = a_run(ledger, "CC-MAIN-2024-10"), a_run(ledger, "CC-MAIN-2024-18", idle, now=9)

    under_way = call("status")
    cancelled = call("cancel")
    none_under_way = call("status")

    assert run in under_way.stdout
    assert cancelled.stderr == f"Run {run} is cancelled.\n"
    assert newer in none_under_way.stdout
