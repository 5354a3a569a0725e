"""The check of a worker that divides its model over several GPUs."""

from importlib.metadata import version

from fleet.counted import counted
from fleet.doctor.checks import Check, Verdict, ok, wrong
from fleet.errors import UsageError
from fleet.settings import Settings
from worker.supervisor.groups import check_accelerate, check_groups
from worker.supervisor.places import visible_gpus

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
