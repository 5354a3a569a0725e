"""The README's picture of the status screen is drawn from a real status, and a page that shows it loads nothing else."""

import re
import runpy
import xml.etree.ElementTree as ET

import pytest

from shardsift.fleet.ledger import Ledger
from shardsift.producer.status import run_status
from support.ledger_states import claimed
from support.pages import ROOT
from support.records import a_receipt, a_shard, a_spec

PICTURE = ROOT / "docs/pictures/status.svg"
A, B = a_shard("a"), a_shard("b")
LABELS = ("run", "progress", "shards", "rows", "speed", "work", "workers", "output")


@pytest.fixture(params=["committed", "drawn now"])
def picture(request: pytest.FixtureRequest, ledger: Ledger) -> str:
    if request.param == "committed":
        return PICTURE.read_text()
    spec = a_spec()
    ledger.create_run(spec, [A, B], now=0)
    ledger.complete(claimed(ledger, spec.run_id, A), a_receipt(spec.run_id, A))
    draw = runpy.run_path(str(ROOT / "docs/status_picture.py"))["picture_of"]
    return str(draw(run_status(ledger, spec.run_id)))


def test_it_is_an_image_that_loads_nothing(picture: str) -> None:
    assert re.findall(r"https?://[^\"]+", picture) == ["http://www.w3.org/2000/svg"]  # the name of the format
    assert not {"image", "script", "use", "foreignObject"} & {
        element.tag.rpartition("}")[2] for element in ET.fromstring(picture).iter()
    }
    assert "@import" not in picture


def test_it_shows_the_lines_of_the_screen(picture: str) -> None:
    shown = "".join(ET.fromstring(picture).itertext()).replace("\xa0", " ")

    assert "producer status --watch" in shown
    assert re.search(r"█+▒*░+", shown)
    assert [label for label in LABELS if label not in shown] == []
