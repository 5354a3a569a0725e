"""ops/monitoring: the alerts fire in Prometheus' own tests, and a real Prometheus reads a finalizer."""

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fleet.ledger import Ledger
from fleet.processes import running
from producer.metrics.collect import FleetCollector
from support.fleet import Fleet
from support.pages import ROOT
from support.ports import unused_port
from support.records import a_shard, a_spec
from support.waiting import wait_until

FOLDER = ROOT / "ops/monitoring"
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here: apt install prometheus")


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    return list(group["rules"])


@needs_promtool
@pytest.mark.parametrize(
    "command",
    [("check", "config", "prometheus.yml"), ("check", "rules", "alerts.yml"), ("test", "rules", "alerts.test.yml")],
)
def test_promtool_has_no_complaint(command: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *command], cwd=FOLDER, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    cases = [
        case
        for test in yaml.safe_load((FOLDER / "alerts.test.yml").read_text())["tests"]
        for case in test["alert_rule_test"]
    ]

    for rule in rules():
        of_rule = [case for case in cases if case["alertname"] == rule["alert"]]
        assert any(case.get("exp_alerts") for case in of_rule), rule["alert"]
        assert not all(case.get("exp_alerts") for case in of_rule), rule["alert"]


def test_alerts_and_page_name_metrics_that_are_exported(ledger: Ledger) -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector(ledger))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    exported = {f"{one.name}_total" if one.type == "counter" else one.name for one in families}

    named = {name for rule in rules() for name in re.findall(r"shardsift_\w+", rule["expr"])}
    page = (FOLDER / "README.md").read_text()
    assert named <= exported
    assert set(re.findall(r"`(shardsift_\w+)`", page)) == exported
    assert {name for name in re.findall(r"`(Shardsift\w+)`", page)} == {rule["alert"] for rule in rules()}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus here: apt install prometheus")
def test_a_real_prometheus_scrapes_a_finalizer_and_evaluates_the_alerts(fleet: Fleet, tmp_path: Path) -> None:
    metrics, port = unused_port(), unused_port()
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{metrics}"]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy(FOLDER / "alerts.yml", tmp_path)
    spec = a_spec()
    fleet.ledger.create_run(spec, [a_shard("a")], now=0)

    def asked(path: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=5) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def found(query: str) -> list[Any]:
        answer = asked(f"query?query={urllib.parse.quote(query)}")
        return list(answer["result"]) if answer else []

    command = ["prometheus", "--config.file", "prometheus.yml", "--storage.tsdb.path", "data"]
    command += ["--web.listen-address", f"127.0.0.1:{port}"]
    with (
        fleet.finalizer(environment={"SHARDSIFT_METRICS_PORT": str(metrics)}),
        running(["env", "-C", str(tmp_path), *command], log=tmp_path / "prometheus.log", stop_seconds=20),
    ):
        wait_until(lambda: found("shardsift_up == 1"), description="it has scraped the finalizer", seconds=60)
        (queued,) = found('shardsift_shards{state="queued"}')
        wait_until(
            lambda: (
                {alert["labels"]["alertname"] for alert in (asked("alerts") or {"alerts": []})["alerts"]}
                == {"ShardsiftNotServed"}
            ),
            description="the alert of a run that no worker serves is pending",
            seconds=90,
        )

    assert queued["metric"]["run"] == spec.run_id
    assert queued["value"][1] == "1"
