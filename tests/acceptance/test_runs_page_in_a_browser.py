"""The Runs page in a real browser shows a run, and shows markup in names and errors as text."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fleet.attempt_report import AttemptReport
from fleet.ledger.keys import Keys
from support.browser import LOGIN, needs_chromium, page
from support.fleet import Fleet
from support.ledger_states import claimed
from support.ports import unused_port
from support.processes import started
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


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.images: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.images.append(str(dict(attrs).get("src")))

    def handle_data(self, data: str) -> None:
        self.text += data


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
    environment = {**fleet.environment, "SHARDSIFT_FLOWER_AUTH": LOGIN}

    with started("producer", "flower", "--port", str(PORT), environment=environment, log=fleet.log("flower")):
        html = wait_until(lambda: shown_run(spec.run_id, tmp_path), description="the page shows the run")
    shown = Tags(html)

    cells = re.findall(r'role="option"[^>]*class="cell state-(\w+)', html)
    assert sorted(cells) == ["done", "failed", "failed", "running"]
    assert "41 % of peak, 63 % of memory, 97 % busy" in shown.text
    assert f"producer retry {spec.run_id}" in shown.text
    assert f"Traceback: {MARKUP}" in shown.text
    assert [image for image in shown.images if "favicon" not in image] == []
    assert "<rect" in html  # the histogram


def shown_run(run_id: str, profile: Path) -> str | None:
    """None until Flower answers."""
    html = page(PORT, f"/runs/{run_id}", profile / "profile")
    return html if 'class="cell state-' in html and "Live" in html else None
