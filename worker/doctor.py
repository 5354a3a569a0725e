"""Check a machine for `worker doctor`, cheap checks first: disks, GPUs, cores, Redis, the Hub, torch, and that the model loads.

torch is imported by its own check alone.
"""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from huggingface_hub import constants

from fleet.doctor.checks import Check, Verdict, ok, warning, wrong, wrong_by
from fleet.doctor.services import disk_checks, hub_checks, redis_checks
from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.presence.demand import Load, open_demands
from fleet.process.children import Cores, usable_cores
from fleet.process.settings import Settings
from fleet.process.wording import counted
from fleet.run.model import Model
from fleet.run.scorers import check_requirements, resolve_model, scorer_kind
from worker.scoring import ModelError, Scorer
from worker.service.ipc import hand_down
from worker.service.logs import quieten_model_libraries
from worker.supervisor.places import check_accelerate, check_groups, visible_gpus

NVIDIA_SMI_SECONDS = 20.0  # it is slow if no persistence daemon keeps the driver loaded
_CUDA = re.compile(r"CUDA (?:UMD )?Version\s*:\s*(\d+)\.(\d+)")
_DRIVER_MEND = "Install the NVIDIA driver or load it again: `nvidia-smi` must list the GPU."
_NO_GPU_MEND = (
    "On a machine with a GPU, install the NVIDIA driver, and in a container the NVIDIA Container Toolkit. "
    "SHARDSIFT_DEVICE=cpu says that the CPU is meant."
)
_MEMORY_MEND = "End what uses the GPU, which `nvidia-smi` shows, or choose another with CUDA_VISIBLE_DEVICES."
_CORES_MEND = "Give the machine or the container more cores. One core tokenises about 1,500 rows/s."
_CORES_PER_GPU = 4
_ENOUGH_FREE_MIB = 8_192
_TORCH_SECONDS = 120.0  # the first import of a new installation reads gigabytes
_LOADING_SECONDS = 1_800.0  # a model is downloaded first, if it is not in the cache
_CUDA_TORCH = (
    "Install torch for CUDA, see https://pytorch.org/get-started/locally; SHARDSIFT_DEVICE=cpu scores on the CPU."
)
_NAME_ONE = "Name one: worker doctor --model MODEL."
_OTHER_MODEL = "Name a sequence classifier with --model; docs/troubleshooting.md lists what its message means."
_GROUPS_MEND = "Choose another SHARDSIFT_GPUS_PER_WORKER, or limit the GPUs with `worker start --gpus`."


def worker_checks(settings: Settings) -> list[Check]:
    """The checks for a worker with these settings."""
    return [
        *disk_checks(settings, model_cache=None if constants.HF_HUB_OFFLINE else Path(constants.HF_HUB_CACHE)),
        *gpu_checks(settings),
        *sharding_checks(settings),
        *_redis_checks(settings),
        *hub_checks(is_needed=False),
        torch_check(settings),
        model_check(settings),
    ]


@dataclass(frozen=True, kw_only=True)
class Gpu:
    uuid: str
    name: str
    driver: str
    free_mib: int | None  # None if it shares the machine's memory


def gpu_checks(settings: Settings, *, cores: Cores | None = None) -> list[Check]:
    """The GPUs and the cores that feed them. Asks nvidia-smi, which needs no torch and no free GPU memory.

    Cores alone if the settings choose another device.
    """
    found = cores or usable_cores()
    is_gpu_meant = settings.device == "auto" or settings.device.startswith("cuda")
    if not is_gpu_meant or platform.system() == "Darwin":
        return [Check(name="cores", look=lambda: _cores_verdict(found, []), mend=_CORES_MEND)]
    seconds = NVIDIA_SMI_SECONDS + 1
    return [
        Check(name="gpu", look=_gpu_verdict, mend=_DRIVER_MEND, seconds=seconds),
        Check(name="cores", look=lambda: _cores_verdict(found, _gpus()), mend=_CORES_MEND, seconds=seconds),
    ]


def sharding_checks(settings: Settings) -> list[Check]:
    """None if each worker has one GPU. Which way a model is divided is in the line of the model."""
    if settings.gpus_per_worker == 1:
        return []
    return [Check(name="gpus per worker", look=lambda: _can_be_dealt_out(settings), mend=_GROUPS_MEND)]


def torch_check(settings: Settings) -> Check:
    return Check(name="torch", look=lambda: _torch(settings.device), mend=_CUDA_TORCH, seconds=_TORCH_SECONDS)


def model_check(settings: Settings) -> Check:
    """The model that the settings name, otherwise one that the fleet needs."""
    asks_fleet = settings.redis_url is not None and not _is_named(settings)
    return Check(
        name="model",
        look=lambda: _model(settings),
        mend=_OTHER_MODEL,
        seconds=_LOADING_SECONDS,
        needs=("torch", "redis") if asks_fleet else ("torch",),
    )


def _redis_checks(settings: Settings) -> list[Check]:
    return redis_checks(settings) if settings.redis_url else [Check(name="redis", look=_no_redis, mend="")]


def _no_redis() -> Verdict:
    return warning(
        "REDIS_URL is not set: `worker start` needs it.",
        "Set REDIS_URL to the fleet's Redis; on one machine, `producer run` starts its own.",
    )


def _gpu_verdict() -> Verdict:
    if not shutil.which("nvidia-smi"):
        return warning("There is no nvidia-smi: a CPU scores many times more slowly.", _NO_GPU_MEND)
    gpus = _gpus()
    if not gpus:
        listed = _nvidia_smi("-L")
        if listed.returncode:
            said = " ".join((listed.stdout + listed.stderr).split())
            return wrong(f"nvidia-smi finds no GPU: {said[:200]}", _DRIVER_MEND)
        return warning("nvidia-smi lists no GPU that this process may use.", _NO_GPU_MEND)
    names = ", ".join(dict.fromkeys(gpu.name for gpu in gpus))
    cuda = driver_cuda()
    supports = f" for CUDA {'.'.join(map(str, cuda))} and earlier" if cuda else ""
    says = f"{counted(len(gpus), 'GPU')}: {names}; driver {gpus[0].driver}{supports}"
    least = min((gpu.free_mib for gpu in gpus if gpu.free_mib is not None), default=None)
    if least is None:
        return ok(f"{says}.")
    says = f"{says}; at least {least:,} MiB free."
    return ok(says) if least >= _ENOUGH_FREE_MIB else warning(says, _MEMORY_MEND)


def _cores_verdict(cores: Cores, gpus: Sequence[Gpu]) -> Verdict:
    says = f"{cores.usable} of {counted(os.cpu_count() or cores.usable, 'core')} usable"
    if not gpus:
        return ok(f"{says}.")
    says = f"{says}, for {counted(len(gpus), 'GPU')}."
    return ok(says) if cores.usable >= _CORES_PER_GPU * len(gpus) else warning(says, _CORES_MEND)


def _gpus() -> list[Gpu]:
    """The GPUs that this process may use. Empty if nvidia-smi does not run."""
    try:
        listed = _nvidia_smi("--query-gpu=uuid,name,driver_version,memory.free", "--format=csv,noheader,nounits").stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    return _visible([_parsed(line) for line in listed.splitlines() if line.count(",") >= 3])


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA version that the driver supports; None if nvidia-smi does not say."""
    try:
        found = _CUDA.search(_nvidia_smi().stdout)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (int(found[1]), int(found[2])) if found else None


def _nvidia_smi(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["nvidia-smi", *arguments], capture_output=True, text=True, check=False, timeout=NVIDIA_SMI_SECONDS
    )


def _parsed(line: str) -> Gpu:
    uuid, name, driver, free = (part.strip() for part in line.split(",", 3))
    return Gpu(uuid=uuid, name=name, driver=driver, free_mib=int(free) if free.isdigit() else None)


def _visible(gpus: list[Gpu]) -> list[Gpu]:
    """Those that this process may use, by number or id; all if they are named in another way, as MIG devices are."""
    names = visible_gpus()
    found = [gpu for name in names for number, gpu in enumerate(gpus) if _is(name, number, gpu)]
    return found or (gpus if names else [])


def _is(name: str, number: int, gpu: Gpu) -> bool:
    return name == str(number) or (name.startswith("GPU-") and gpu.uuid.startswith(name))


def _can_be_dealt_out(settings: Settings) -> Verdict:
    each, is_cpu = settings.gpus_per_worker, settings.device == "cpu"
    gpus = 0 if is_cpu else len(visible_gpus())
    try:
        check_accelerate(each)
        check_groups(gpus, each, device=settings.device)
    except UsageError as error:
        return wrong(str(error), _GROUPS_MEND)
    groups = (
        f"{each} processes on the CPU for a worker" if is_cpu else counted(gpus // each, "worker") + f" of {each} GPUs"
    )
    return ok(f"{groups}; accelerate {version('accelerate')}.")


def _torch(device_name: str) -> Verdict:
    quieten_model_libraries()
    try:
        import torch
    except ImportError as error:
        return wrong(f"torch cannot be imported: {error}.", "Install it: pip install 'shardsift[worker]'.")
    from worker.scoring import device

    sign = None if device_name in ("cpu", "mps") else device.sign_of_a_gpu()
    built_for = torch.version.cuda or torch.version.hip
    if sign and not built_for:
        return wrong(f"{sign}, but torch {torch.__version__} is built for the CPU only.", _CUDA_TORCH)
    try:
        chosen = device.choose_device(device_name)
    except ModelError as error:
        built = torch.version.cuda or ""
        driver = driver_cuda() if built else None
        if driver and driver[0] < int(built.partition(".")[0]):
            return wrong(
                f"The driver supports CUDA {driver[0]}, and torch {torch.__version__} is built for CUDA {built}.",
                f"Update the NVIDIA driver, or install torch for CUDA {driver[0]}: https://pytorch.org/get-started/locally.",
            )
        return wrong_by(error, _CUDA_TORCH)
    return ok(f"torch {torch.__version__} scores on {device.device_name(chosen)}.")


def _model(settings: Settings) -> Verdict:
    """Load it as a worker's child does, with its parity check."""
    load = _load(settings)
    if load is None:
        return warning("No model was tried: none is named, and no run has open shards.", _NAME_ONE)
    check_requirements(scorer_kind(model.scorer) for model in load.models)
    from worker.service.child import load_scorers

    hand_down(load.models)
    try:
        scorers = load_scorers(settings.model_copy(update={"dtype": load.dtype}))
    except ModelError as error:
        return wrong_by(error, _OTHER_MODEL)
    says = " ".join(_loaded(load.models, scorers.values()))
    if settings.parity_rows == 0:
        return warning(f"{says} Its scores were not compared with float32.", "Unset SHARDSIFT_PARITY_ROWS.")
    return ok(says)


def _load(settings: Settings) -> Load | None:
    """The models that the settings name, otherwise what open runs need first."""
    if _is_named(settings):
        models = tuple(resolve_model(settings.scorer, name, revision) for name, revision in settings.models)
        return Load(models=models, dtype=settings.dtype)
    demands = open_demands(Ledger.connect(settings)) if settings.redis_url else []
    return next((demand.load for demand in demands), None)


def _is_named(settings: Settings) -> bool:
    return "model" in settings.model_fields_set


def _loaded(models: tuple[Model, ...], scorers: Iterable[Scorer[Any]]) -> Iterator[str]:
    for model, scorer in zip(models, scorers, strict=True):
        info = scorer.info
        parity = info.parity
        yield f"{model.name} is loaded on {info.device} in {info.dtype}, {info.backend}" + (
            f"; its logits of {counted(parity.rows, 'sample text')} differ from float32 by at most {parity.max_error:.2g}."
            if parity
            else "."
        )
