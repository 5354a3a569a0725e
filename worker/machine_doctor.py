"""Check a machine for `worker doctor`: the GPU, Redis, the Hub, that torch fits the driver, and that the model loads.

torch is imported only when the checks of torch and of the model run.
"""

import platform
from functools import partial

from shardsift.fleet.checks import OF_WORKERS, Check, Verdict, hub_check, ok, redis_checks, warning, wrong
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.presence.demand import Load, open_demands
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.process.wording import counted
from shardsift.fleet.scorers.kinds import check_requirements, resolve_models, scorer_kind
from shardsift.worker.scoring import ModelError
from shardsift.worker.scoring.gpus import driver_cuda, nvidia_smi, visible_gpus
from shardsift.worker.scoring.quiet import quieten_imports
from shardsift.worker.service.ipc import hand_down

_DRIVER_MEND = "Install the NVIDIA driver or load it again: `nvidia-smi` must list the GPU."
_NO_GPU_MEND = (
    "On a machine with a GPU, install the NVIDIA driver, and in a container the NVIDIA Container Toolkit. "
    "SHARDSIFT_DEVICE=cpu says that the CPU is meant."
)
_NO_REDIS_MEND = "Set REDIS_URL to the fleet's Redis; on one machine, `producer run` starts its own."
_CUDA_TORCH = (
    "Install torch for CUDA, see https://pytorch.org/get-started/locally; SHARDSIFT_DEVICE=cpu scores on the CPU."
)
_NAME_ONE = "Name one: worker doctor --model MODEL."
_OTHER_MODEL = "Name a sequence classifier with --model; docs/troubleshooting.md lists what its message means."


def worker_checks(settings: Settings) -> list[Check]:
    none = partial(warning, "REDIS_URL is not set: `worker start` needs it.", _NO_REDIS_MEND)
    redis = redis_checks(settings, OF_WORKERS, otherwise=none)
    return [*gpu_checks(settings), *redis, hub_check(), torch_check(settings), model_check(settings)]


def gpu_checks(settings: Settings) -> list[Check]:
    """Return the GPU check, or no check on macOS and for a device other than CUDA. Does not import torch."""
    is_gpu_meant = settings.device == "auto" or settings.device.startswith("cuda")
    if not is_gpu_meant or platform.system() == "Darwin":
        return []
    return [Check(name="gpu", run=_gpu, mend=_DRIVER_MEND)]


def torch_check(settings: Settings) -> Check:
    return Check(name="torch", run=partial(_torch, settings.device), mend=_CUDA_TORCH)


def model_check(settings: Settings) -> Check:
    """Return a check that loads the models named in the settings, or those of the oldest open run."""
    needs = ("torch",) if _is_named(settings) else ("torch", "redis")
    return Check(name="model", run=partial(_model, settings), mend=_OTHER_MODEL, needs=needs)


def _gpu() -> Verdict:
    listed = nvidia_smi("-L")
    if listed is None:
        return warning("There is no nvidia-smi: a CPU scores many times more slowly.", _NO_GPU_MEND)
    if listed.returncode:
        said = " ".join((listed.stdout + listed.stderr).split())
        return wrong(f"nvidia-smi finds no GPU: {said[:200]}", _DRIVER_MEND)
    gpus = visible_gpus()
    if not gpus:
        return warning("nvidia-smi lists no GPU that this process may use.", _NO_GPU_MEND)
    return ok(f"This process may use {counted(len(gpus), 'GPU')}.")


def _torch(device_name: str) -> Verdict:
    quieten_imports()
    try:
        import torch
    except ImportError as error:
        return wrong(f"torch cannot be imported: {error}.", "Install it: pip install 'shardsift[worker]'.")
    from shardsift.worker.scoring import device

    sign = None if device_name in ("cpu", "mps") else device.sign_of_a_gpu()
    built_for = torch.version.cuda or torch.version.hip
    if sign and not built_for:
        return wrong(f"{sign}, but torch {torch.__version__} is built for the CPU only.", _CUDA_TORCH)
    try:
        chosen = device.choose_device(device_name)
    except ModelError as error:
        return _does_not_fit_driver(torch.__version__, torch.version.cuda or "") or wrong(str(error), _CUDA_TORCH)
    return ok(f"torch {torch.__version__} scores on {device.device_name(chosen)}.")


def _does_not_fit_driver(version: str, cuda: str) -> Verdict | None:
    driver = driver_cuda() if cuda else None
    if driver is None or driver >= int(cuda.partition(".")[0]):
        return None
    return wrong(
        f"The driver supports CUDA {driver}, and torch {version} is built for CUDA {cuda}.",
        f"Update the NVIDIA driver, or install torch for CUDA {driver}: https://pytorch.org/get-started/locally.",
    )


def _model(settings: Settings) -> Verdict:
    load = _load(settings)
    if load is None:
        return warning("No model was tried: none is named, and no run has open shards.", _NAME_ONE)
    check_requirements(scorer_kind(model.scorer) for model in load.models)
    from shardsift.worker.service.child import load_handed_down, loaded_line

    hand_down(load.models)
    scorers = load_handed_down(settings.model_copy(update={"dtype": load.dtype}))
    loaded = zip(load.models, scorers.values(), strict=True)
    return ok(" ".join(loaded_line(model, scorer.info) for model, scorer in loaded))


def _load(settings: Settings) -> Load | None:
    if _is_named(settings):
        models = resolve_models(settings.scorer, settings.models)
        return Load(models=models, dtype=settings.dtype)
    demands = open_demands(Ledger.connect(settings)) if settings.redis_url else []
    return next((demand.load for demand in demands), None)


def _is_named(settings: Settings) -> bool:
    return "model" in settings.model_fields_set
