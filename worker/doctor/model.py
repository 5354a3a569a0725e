"""The checks that need torch: its build fits the GPU and its driver, and the worker's model loads and scores as it should."""

from collections.abc import Iterable, Iterator
from typing import Any

from fleet.doctor.checks import Check, Verdict, ok, warning, wrong, wrong_by
from fleet.ledger import Ledger
from fleet.presence.demand import Load, open_demands
from fleet.process.settings import Settings
from fleet.process.wording import counted
from fleet.run.model import Model
from fleet.run.scorers import check_requirements, resolve_model, scorer_kind
from worker.doctor.gpus import driver_cuda
from worker.scoring import ModelError, Scorer
from worker.service.ipc import hand_down
from worker.service.logs import quieten_model_libraries

_TORCH_SECONDS = 120.0  # the first import of a new installation reads gigabytes
_LOADING_SECONDS = 1_800.0  # a model is downloaded first, if it is not in the cache
_CUDA_TORCH = (
    "Install torch for CUDA, see https://pytorch.org/get-started/locally; SHARDSIFT_DEVICE=cpu scores on the CPU."
)
_NAME_ONE = "Name one: worker doctor --model MODEL."
_OTHER_MODEL = "Name a sequence classifier with --model; docs/troubleshooting.md lists what its message means."


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
    driver = driver_cuda() if sign and torch.version.cuda else None
    if driver and driver[0] < _major(torch.version.cuda):
        newest = ".".join(map(str, driver))
        return wrong(
            f"The driver supports CUDA {newest} and earlier, and torch {torch.__version__} is built for "
            f"CUDA {torch.version.cuda}.",
            f"Update the NVIDIA driver, or install torch for CUDA {driver[0]}: https://pytorch.org/get-started/locally.",
        )
    try:
        chosen = device.choose_device(device_name)
    except ModelError as error:
        return wrong_by(error, _CUDA_TORCH)
    return ok(f"torch {torch.__version__} scores on {device.device_name(chosen)}.")


def _major(version: str | None) -> int:
    return int((version or "0").partition(".")[0])


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
