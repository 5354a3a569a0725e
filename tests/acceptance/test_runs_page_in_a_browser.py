"""The Runs page in a real browser shows a run, follows it, and shows markup in names and errors as text."""

from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardsift.producer.local.demo_data import write_shards
from support.browser import needs_chromium, open_browser
from support.fleet import Fleet
from support.flower import LOGIN, flower_of
from support.injected_faults import STAND_IN, InjectedFaults
from support.ports import unused_port
from support.waiting import wait_until

PORT = unused_port()


pytestmark = [pytest.mark.slow, needs_chromium]


def test_the_page_follows_a_run_without_reload_also_after_a_restart_of_flower(
    fleet: Fleet, faults: InjectedFaults, tiny_model: Path, tmp_path: Path
) -> None:
    faults.use_stand_in(seconds_a_batch=0.3)
    fleet.environment |= faults.environment
    run_id = enqueued_with_a_long_and_a_corrupt_shard(fleet, tiny_model, tmp_path)
    done = "document.getElementById('done')?.textContent"
    seen = set()

    with open_browser(tmp_path) as tab, ExitStack() as services:
        with flower_of(fleet, PORT) as address:
            tab.log_in(LOGIN)
            tab.open(f"{address}/runs/{run_id}", until=f"{done} === '0 of 7'")
            tab.value("window.isTheSame = true")
            services.enter_context(fleet.finalizer())
            for name in ("w1", "w2"):
                services.enter_context(fleet.worker(tiny_model, name=name))

            def has_begun() -> bool:
                seen.add(tab.value(done))
                return len(seen) > 2 and not tab.value("document.getElementById('failed-card').hidden")

            wait_until(has_begun, description="the page has followed", seconds=120)
            traceback = tab.value("document.querySelector('#failed details.traceback pre').textContent")
        tab.wait_for("document.getElementById('live').textContent === 'Not live'")
        with flower_of(fleet, PORT):
            tab.wait_for(f"document.getElementById('live').textContent === 'Live' && {done} === '6 of 7'")
            assert tab.value("window.isTheSame")

    assert "Traceback" in traceback


def enqueued_with_a_long_and_a_corrupt_shard(fleet: Fleet, model: Path, folder: Path) -> str:
    """A run of seven shards. One has twelve times the rows of the others, and one is no Parquet."""
    write_shards(folder / "shards", shards=7, rows=12, seed=1)
    long, *_, corrupt = sorted((folder / "shards").iterdir())
    corrupt.write_bytes(b"not Parquet")
    pq.write_table(pa.concat_tables([pq.read_table(long)] * 12), long)
    arguments = ("--input", folder / "shards", "--model", model, "--scorer", STAND_IN, "--output", folder / "out")
    return fleet.enqueue(*arguments)
