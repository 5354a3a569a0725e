"""The Runs page in a real browser shows a run, follows it, and shows markup in names and errors as text."""

from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardsift.fleet.ledger.base import Keys
from shardsift.fleet.run.receipt import AttemptReport
from shardsift.producer.local.demo_data import write_shards
from support.browser import needs_chromium, open_browser
from support.fleet import Fleet
from support.flower import LOGIN, flower_of
from support.injected_faults import STAND_IN, InjectedFaults
from support.ledger_states import claimed
from support.ports import unused_port
from support.records import a_receipt, a_shard, a_spec
from support.waiting import wait_until

PORT = unused_port()
MARKUP = "<img src=x onerror=alert(1)>"

REPORT = AttemptReport(
    device="NVIDIA H100",
    rows_per_second=117.6,
    rows_written=4,
    rows_kept=3,
    tokens=900,
    seconds={"device": 4.5, "input": 0.5},
    peak_share=0.412,
    memory_share=0.631,
    busy_share=0.97,
)

pytestmark = [pytest.mark.slow, needs_chromium]


def test_a_run_is_shown_and_markup_stays_text(fleet: Fleet, tmp_path: Path) -> None:
    spec, done, failed, held = a_spec(), a_shard("done"), a_shard("failed"), a_shard("held")
    ledger = fleet.ledger
    ledger.create_run(spec, [done, failed, held], now=1.0)
    ledger.complete(claimed(ledger, spec.run_id, done), a_receipt(spec.run_id, done))
    ledger.fail(claimed(ledger, spec.run_id, failed, owner=MARKUP), MARKUP, f"Traceback: {MARKUP}")
    ledger.renew(claimed(ledger, spec.run_id, held), rows=4, report=REPORT)
    keys = Keys(spec.run_id)
    ledger.redis.hset(keys.shards, MARKUP, "{}")  # no shard has such a name; somebody wrote it by hand
    ledger.redis.sadd(keys.failed, MARKUP)

    with flower_of(fleet, PORT) as address, open_browser(tmp_path) as tab:
        tab.log_in(LOGIN)
        tab.open(f"{address}/runs/{spec.run_id}", until="document.getElementById('live')?.textContent === 'Live'")
        text = tab.value("document.body.textContent")
        images = tab.value("[...document.images].map(image => image.src)")
        silent = tab.value("document.querySelectorAll('tr.is-silent').length")
        bars = tab.value("document.querySelectorAll('rect').length")

    assert "not seen" in text  # the worker, which announces nothing here
    assert silent == 0  # but it has just reported on its shard
    assert "What a threshold on score alone would keep" in text
    assert "41 % of peak, 63 % of memory, 97 % busy" in text
    assert f"producer retry {spec.run_id}" in text
    assert f"Traceback: {MARKUP}" in text
    assert [image for image in images if "favicon" not in image] == []
    assert bars > 0  # of the histogram


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
