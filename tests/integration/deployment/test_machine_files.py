"""The templates of GPU machines are understood by the tools that read them, as far as `make check` cannot ask those."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from support.compose import BIN, ROOT
from support.machine_files import (
    FINALIZER_UNIT,
    HF_JOB_SCRIPT,
    KUBERNETES,
    OPS,
    POWER_OFF,
    UNIT,
    USER_DATA,
    kubernetes_object,
    skypilot_task,
    started_by,
    unit_settings,
    written_file,
)
from support.pages import texts_of

pytestmark = pytest.mark.slow

SETUP = "/usr/local/sbin/shardsift-setup"


def ran(command: str | list[str | Path], **how: Any) -> subprocess.CompletedProcess[str]:
    is_line = isinstance(command, str)
    return subprocess.run(command, shell=is_line, capture_output=True, text=True, check=False, timeout=60, **how)


@pytest.mark.parametrize(
    "script",
    [written_file(SETUP), *(f"#!/bin/bash\n{skypilot_task()[part]}" for part in ("setup", "run"))],
    ids=["cloud-init", "skypilot setup", "skypilot run"],
)
def test_shellcheck_has_no_complaint_about_the_scripts_in_yaml(script: str) -> None:
    answer = ran([BIN / "shellcheck", "-"], input=script)

    assert (answer.returncode, answer.stdout) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("unit", [UNIT, FINALIZER_UNIT], ids=["worker", "finalizer"])
def test_systemd_understands_the_units_and_the_drop_in(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    shutil.copy(unit, copy)
    if unit is UNIT:
        (tmp_path / f"{unit.name}.d").mkdir()
        shutil.copy(POWER_OFF, tmp_path / f"{unit.name}.d")

    done = ran(["systemd-analyze", "verify", copy])

    # Only GPU machines have the programs.
    assert [line for line in done.stderr.splitlines() if "is not executable: No such file" not in line] == []


def test_only_the_note_of_an_idle_end_switches_the_machine_off(tmp_path: Path) -> None:
    note, asked = tmp_path / "idle", tmp_path / "asked"
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    (tmp_path / "systemctl").chmod(0o755)
    (after,) = unit_settings(POWER_OFF)["ExecStopPost"]
    command = after.removeprefix("+").replace("/run/shardsift/idle", str(note))
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}

    assert ran(command, env=environment).returncode == 0
    stays_on = not asked.exists()
    note.touch()
    assert ran(command, env=environment).returncode == 0

    assert stays_on
    assert asked.read_text() == "--no-block poweroff\n"
    assert started_by(POWER_OFF)[-1] == "touch /run/shardsift/idle"


def test_cloud_init_understands_the_user_data() -> None:
    assert USER_DATA.read_text().startswith("#cloud-config\n")
    for file in (UNIT, POWER_OFF, ROOT / "constraints.txt"):
        assert str(file.relative_to(ROOT)) in written_file(SETUP)
    if shutil.which("cloud-init") is None:
        pytest.skip("no cloud-init here")
    answer = ran(["cloud-init", "schema", "--config-file", USER_DATA])
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_hf_understands_every_command_of_the_page(tmp_path: Path) -> None:
    lines = [
        line
        for page in (HF_JOB_SCRIPT.parent / "README.md", ROOT / "docs/rented_gpus.md")
        for block in texts_of(page, "sh")
        for line in block.replace("\\\n", " ").splitlines()
        if "hf jobs uv run" in line
    ]
    assert lines
    commands = [re.sub(r"^.*?hf jobs uv run", "hf jobs uv run --dry-run", line).partition(";")[0] for line in lines]
    environment = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "HF_ENDPOINT": "http://127.0.0.1:9",  # there is no need to ask
        "HF_HOME": str(tmp_path),
        "HF_TOKEN": "a token",
        "REDIS_URL": "rediss://:password@redis.example.com:6379/0",
    }
    for command in dict.fromkeys(commands):
        answer = ran(command, cwd=ROOT, env=environment)
        assert answer.returncode == 0, answer.stderr
        assert "password" not in answer.stdout


def test_kubernetes_understands_the_jobs_that_keda_starts() -> None:
    spec = kubernetes_object("ScaledJob", "shardsift-worker")["spec"]["jobTargetRef"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "worker"}, "spec": spec}

    kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl here")
def test_kubectl_understands_the_kustomization() -> None:
    assert ran(["kubectl", "kustomize", KUBERNETES]).returncode == 0


def test_keda_asks_the_finalizer_for_a_metric_that_it_serves() -> None:
    kustomization = yaml.safe_load((OPS / "kubernetes/kustomization.yaml").read_text())
    service = kubernetes_object("Service", "shardsift-finalizer")
    (trigger,) = kubernetes_object("ScaledJob", "shardsift-worker")["spec"]["triggers"]
    port, asked = service["spec"]["ports"][0]["port"], trigger["metadata"]

    host = f"{service['metadata']['name']}.{kustomization['namespace']}.svc"
    assert (asked["url"], asked["format"]) == (f"http://{host}:{port}/metrics", "prometheus")
    assert f'"{asked["valueLocation"]}"' in (ROOT / "producer/status/metrics.py").read_text()
    (finalizer,) = kubernetes_object("Deployment", "shardsift-finalizer")["spec"]["template"]["spec"]["containers"]
    assert {"name": "SHARDSIFT_METRICS_PORT", "value": str(port)} in finalizer["env"]
