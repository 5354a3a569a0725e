"""All checks of `worker doctor`, cheap ones first. Imports no torch."""

from importlib.metadata import version
from pathlib import Path

from huggingface_hub import constants

from fleet.doctor.checks import Check, Verdict, ok, warning, wrong
from fleet.doctor.services import hub_checks, model_cache_check, redis_checks, scratch_disk_check
from fleet.errors import UsageError
from fleet.process.settings import Settings
from fleet.process.wording import counted
from worker.doctor.gpus import gpu_checks
from worker.doctor.model import model_check, torch_check
from worker.supervisor.places import check_accelerate, check_groups, visible_gpus


def worker_checks(settings: Settings) -> list[Check]:
    """The checks for a worker with these settings."""
    return [
        scratch_disk_check(settings),
        *([] if constants.HF_HUB_OFFLINE else [model_cache_check(Path(constants.HF_HUB_CACHE))]),
        *gpu_checks(settings),
        *sharding_checks(settings),
        *_redis_checks(settings),
        *hub_checks(is_needed=False),
        torch_check(settings),
        model_check(settings),
    ]


def _redis_checks(settings: Settings) -> list[Check]:
    return redis_checks(settings) if settings.redis_url else [Check(name="redis", look=_no_redis, mend="")]


def _no_redis() -> Verdict:
    return warning(
        "REDIS_URL is not set: `worker start` needs it.",
        "Set REDIS_URL to the fleet's Redis; on one machine, `producer run` starts its own.",
    )


# The check of a worker that divides its model over several GPUs.

_MEND = "Choose another SHARDSIFT_GPUS_PER_WORKER, or limit the GPUs with `worker start --gpus`."


def sharding_checks(settings: Settings) -> list[Check]:
    """None if each worker has one GPU. Which way a model is divided is in the line of the model."""
    if settings.gpus_per_worker == 1:
        return []
    return [Check(name="gpus per worker", look=lambda: _can_be_dealt_out(settings), mend=_MEND)]


def _can_be_dealt_out(settings: Settings) -> Verdict:
    each, is_cpu = settings.gpus_per_worker, settings.device == "cpu"
    gpus = 0 if is_cpu else len(visible_gpus())
    try:
        check_accelerate(each)
        check_groups(gpus, each, device=settings.device)
    except UsageError as error:
        return wrong(str(error), _MEND)
    groups = (
        f"{each} processes on the CPU for a worker" if is_cpu else counted(gpus // each, "worker") + f" of {each} GPUs"
    )
    return ok(f"{groups}; accelerate {version('accelerate')}.")
