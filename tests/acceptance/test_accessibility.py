"""axe-core finds no serious or critical fault in the pages of runs: desktop and phone, light and dark."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from fleet.ledger import Ledger
from fleet.presence.announcements import WorkerState, announce
from fleet.run.receipt import AttemptReport
from support.axe import axe_core, grave_faults
from support.browser import LOGIN, needs_chromium
from support.devtools import Scheme, Tab, open_browser
from support.fleet import new_fleet
from support.flower import flower_of
from support.ledger_states import claimed
from support.ports import unused_port
from support.records import a_receipt, a_shard, a_spec

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
REPORT = AttemptReport(
    device="NVIDIA H100 80GB HBM3",
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


@dataclass(frozen=True, kw_only=True)
class Pages:
    tab: Tab
    address: str
    run_id: str
    axe: str

    def open_runs(self) -> None:
        self.tab.open(f"{self.address}/runs", until="document.querySelectorAll('#runs tbody tr').length === 3")

    def open_run(self) -> None:
        """With all that a click can open."""
        self.tab.open(f"{self.address}/runs/{self.run_id}", until="document.querySelector('#legend .state-failed')")
        self.tab.wait_for("document.querySelectorAll('details.traceback').length === 1")
        self.tab.value("document.querySelectorAll('details').forEach((one) => { one.open = true })")

    def faults(self) -> list[str]:
        return grave_faults(self.tab, self.axe)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    axe, folder, port = axe_core(), tmp_path_factory.mktemp("pages"), unused_port()
    with new_fleet(folder) as fleet:
        run_id = runs_in_all_states(fleet.ledger)
        with flower_of(fleet, port) as address, open_browser(folder) as tab:
            tab.log_in(LOGIN)
            yield Pages(tab=tab, address=address, run_id=run_id, axe=axe)


def runs_in_all_states(ledger: Ledger) -> str:
    """One that goes on with a failed shard, whose id this returns, one that no worker serves, and one that is paused."""
    spec, unserved, paused = a_spec(), a_spec(input_revision="2"), a_spec(input_revision="3")
    shards = done, failed, held, _queued = [a_shard(name) for name in ("done", "failed", "held", "queued")]
    ledger.create_run(spec, shards, now=3.0)
    for other in (unserved, paused):
        ledger.create_run(other, shards, now=1.0)
    ledger.pause(paused.run_id)
    ledger.complete(claimed(ledger, spec.run_id, done), a_receipt(spec.run_id, done))
    ledger.fail(claimed(ledger, spec.run_id, failed), "No text in column text.", "Traceback:\n  a line\nValueError: no")
    ledger.renew(claimed(ledger, spec.run_id, held), rows=4, report=REPORT)
    announce(ledger.redis, worker_of(spec.run_id, spec.queue))
    return spec.run_id


def worker_of(run_id: str, queue: str) -> WorkerState:
    return WorkerState(
        name="w1",
        queue=queue,
        model="a/model",
        revision="1",
        dtype="float32",
        activity="busy",
        activity_seconds=5.0,
        device="cuda",
        run_id=run_id,
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("which", ["runs", "run"])
def test_a_page_has_no_grave_fault_and_fits_the_window(pages: Pages, which: str, size: str, scheme: Scheme) -> None:
    pages.tab.look_like(*SIZES[size], scheme)

    {"runs": pages.open_runs, "run": pages.open_run}[which]()

    assert pages.faults() == []
    assert pages.tab.value("document.documentElement.dataset.bsTheme") == scheme
    assert pages.tab.value("document.documentElement.scrollWidth") <= SIZES[size][0]


def test_a_button_without_a_name_would_be_found(pages: Pages) -> None:
    pages.open_runs()
    pages.tab.value("document.querySelector('#runs-page').append(document.createElement('button'))")

    assert [fault.partition(" at ")[0] for fault in pages.faults()] == ["button-name"]
