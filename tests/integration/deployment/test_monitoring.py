"""ops/monitoring: the alerts fire in Prometheus' own tests, and a real Prometheus reads a finalizer."""

import json
import re
import runpy
import shutil
import subprocess
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from shardsift.fleet.ledger import Ledger
from shardsift.producer.status.metrics import FleetCollector
from support.pages import ROOT

FOLDER = ROOT / "ops/monitoring"
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here: apt install prometheus")


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    return list(group["rules"])


def queries() -> list[str]:
    """Those of the dashboard's panels."""
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def test_the_dashboard_is_what_its_program_writes() -> None:
    written = runpy.run_path(str(FOLDER / "dashboard.py"))

    assert json.loads((FOLDER / "dashboard.json").read_text()) == json.loads(json.dumps(written["dashboard"]()))


@needs_promtool
@pytest.mark.parametrize(
    "command",
    [("check", "config", "prometheus.yml"), ("check", "rules", "alerts.yml"), ("test", "rules", "alerts.test.yml")],
)
def test_promtool_has_no_complaint(command: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *command], cwd=FOLDER, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_and_page_name_metrics_that_are_exported(ledger: Ledger) -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector(ledger))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    exported = {f"{one.name}_total" if one.type == "counter" else one.name for one in families}

    expressions = [*(rule["expr"] for rule in rules()), *queries()]
    named = {name for expression in expressions for name in re.findall(r"shardsift_\w+", expression)}
    page = (FOLDER / "README.md").read_text()
    assert named <= exported
    assert set(re.findall(r"`(shardsift_\w+)`", page)) == exported
    assert {name for name in re.findall(r"`(Shardsift\w+)`", page)} == {rule["alert"] for rule in rules()}
