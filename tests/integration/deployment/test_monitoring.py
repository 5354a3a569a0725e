"""ops/monitoring: the alerts fire in Prometheus' own tests, and a real Prometheus reads a finalizer."""

import json
import re
import runpy
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fleet.ledger import Ledger
from fleet.process.children import running
from producer.status.metrics import FleetCollector
from support.fleet import Fleet
from support.injected_faults import STAND_IN, InjectedFaults
from support.pages import ROOT
from support.ports import unused_port
from support.records import a_shard, a_spec
from support.waiting import wait_until

FOLDER = ROOT / "ops/monitoring"
OF_A_DEVICE = ("shardsift_peak_share", "shardsift_device_")  # which a stand-in for a model, and a CPU, do not have
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


@needs_promtool
def test_promtool_has_no_complaint_about_the_prometheus_of_compose(tmp_path: Path) -> None:
    shutil.copy(ROOT / "ops/compose/prometheus.yml", tmp_path)
    shutil.copy(FOLDER / "alerts.yml", tmp_path)

    done = subprocess.run(
        ["promtool", "check", "config", "prometheus.yml"], cwd=tmp_path, capture_output=True, text=True
    )

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

    expressions = [*(rule["expr"] for rule in rules()), *queries()]
    named = {name for expression in expressions for name in re.findall(r"shardsift_\w+", expression)}
    page = (FOLDER / "README.md").read_text()
    assert named <= exported
    assert set(re.findall(r"`(shardsift_\w+)`", page)) == exported
    assert {name for name in re.findall(r"`(Shardsift\w+)`", page)} == {rule["alert"] for rule in rules()}


class Prometheus:
    """A real one, on this port."""

    def __init__(self, port: int) -> None:
        self._port = port

    def asked(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/{path}", timeout=5) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def found(self, query: str) -> list[Any]:
        answer = self.asked(f"query?query={urllib.parse.quote(query)}")
        return list(answer["result"]) if answer else []


@pytest.fixture
def prometheus(fleet: Fleet, tmp_path: Path) -> Iterator[Prometheus]:
    """It scrapes the finalizer of the fleet, which runs too, every second."""
    if shutil.which("prometheus") is None:
        pytest.skip("no prometheus here: apt install prometheus")
    metrics, port = unused_port(), unused_port()
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{metrics}"]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy(FOLDER / "alerts.yml", tmp_path)
    command = ["prometheus", "--config.file", "prometheus.yml", "--storage.tsdb.path", "data"]
    command += ["--web.listen-address", f"127.0.0.1:{port}"]
    with (
        fleet.finalizer(environment={"SHARDSIFT_METRICS_PORT": str(metrics)}),
        running(["env", "-C", str(tmp_path), *command], log=tmp_path / "prometheus.log", stop_seconds=20),
    ):
        started = Prometheus(port)
        wait_until(lambda: started.found("shardsift_up == 1"), description="it has scraped the finalizer", seconds=60)
        yield started


@pytest.mark.slow
def test_a_real_prometheus_scrapes_a_finalizer_and_evaluates_the_alerts(fleet: Fleet, prometheus: Prometheus) -> None:
    spec = a_spec()
    fleet.ledger.create_run(spec, [a_shard("a")], now=0)

    (queued,) = wait_until(
        lambda: prometheus.found('shardsift_shards{state="queued"}'), description="the run is scraped", seconds=60
    )
    wait_until(
        lambda: (
            {alert["labels"]["alertname"] for alert in (prometheus.asked("alerts") or {"alerts": []})["alerts"]}
            == {"ShardsiftNotServed"}
        ),
        description="the alert of a run that no worker serves is pending",
        seconds=90,
    )

    assert queued["metric"]["run"] == spec.run_id
    assert queued["value"][1] == "1"


@pytest.mark.slow
def test_every_panel_of_the_dashboard_has_data_from_a_real_run(
    fleet: Fleet, faults: InjectedFaults, prometheus: Prometheus, shards: Path, tiny_model: Path, tmp_path: Path
) -> None:
    faults.use_stand_in(seconds_a_batch=0.3)
    fleet.environment |= faults.environment
    fleet.ledger.redis.config_set("maxmemory", "1gb")
    arguments = ("--input", shards, "--model", tiny_model, "--scorer", STAND_IN, "--output", tmp_path / "out")
    of_every_worker = [query for query in queries() if not any(name in query for name in OF_A_DEVICE)]
    empty = {query.replace("$run", ".*") for query in of_every_worker}

    def all_have_data() -> bool:
        empty.difference_update([query for query in empty if prometheus.found(query)])
        return not empty

    with fleet.machine(environment={"SHARDSIFT_LEASE_SECONDS": "4"}):
        run_id = fleet.producer("enqueue", *arguments).stdout.strip()
        wait_until(all_have_data, description="each query has had data", seconds=120)
        (speed,) = prometheus.found("sum by (run) (rate(shardsift_rows_scored_total[5m]))")

    assert speed["metric"]["run"] == run_id
    assert float(speed["value"][1]) > 0
