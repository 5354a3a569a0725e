"""The templates of GPU machines in ops/, and the worker command line of each."""

import shlex
from pathlib import Path
from typing import Any

import yaml

OPS = Path(__file__).parents[2] / "ops"
UNIT = OPS / "systemd/shardsift-worker.service"
FINALIZER_UNIT = OPS / "systemd/shardsift-finalizer.service"
POWER_OFF = OPS / "systemd/power-off-when-idle.conf"
USER_DATA = OPS / "cloud-init/user-data.yaml"
SKYPILOT_TASK = OPS / "skypilot/worker.yaml"
SLURM_SCRIPT = OPS / "slurm/worker.sh"
HF_JOB_SCRIPT = OPS / "hf-jobs/worker.py"
KUBERNETES = OPS / "kubernetes"


def unit_settings(file: Path) -> dict[str, list[str]]:
    """Read a systemd unit or drop-in. Returns the values of each key, in order."""
    settings: dict[str, list[str]] = {}
    for line in file.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            settings.setdefault(key, []).append(value)
    return settings


def started_by(file: Path) -> list[str]:
    """Return the command that a systemd unit or drop-in starts."""
    return shlex.split(unit_settings(file)["ExecStart"][-1])


def user_data() -> dict[str, Any]:
    return dict(yaml.safe_load(USER_DATA.read_text()))


def written_file(path: str) -> str:
    """Return the content of a file that cloud-init writes."""
    (content,) = [file["content"] for file in user_data()["write_files"] if file["path"] == path]
    return str(content)


def skypilot_task() -> dict[str, Any]:
    return dict(yaml.safe_load(SKYPILOT_TASK.read_text()))


def kubernetes_object(kind: str, name: str) -> dict[str, Any]:
    """Find an object in the Kubernetes files, before kustomize changes it."""
    documents = [document for file in KUBERNETES.glob("*.yaml") for document in yaml.safe_load_all(file.read_text())]
    (found,) = [document for document in documents if document["kind"] == kind and document["metadata"]["name"] == name]
    return dict(found)
