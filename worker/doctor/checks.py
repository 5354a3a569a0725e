"""All checks of `worker doctor`, cheap ones first. Imports no torch."""

from pathlib import Path

from huggingface_hub import constants

from fleet.doctor.checks import Check, Verdict, warning
from fleet.doctor.disks import model_cache_check, scratch_disk_check
from fleet.doctor.hub import hub_checks
from fleet.doctor.redis_server import redis_checks
from fleet.settings import Settings
from worker.doctor.gpus import gpu_checks
from worker.doctor.model import model_check, torch_check
from worker.doctor.sharding import sharding_checks


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
