"""Run `worker start`: find the places and the models, then supervise."""

import logging
import subprocess

from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.presence.demand import Wanted
from fleet.process.durations import parse_duration
from fleet.process.logs import log_to_stderr
from fleet.process.settings import Settings
from fleet.run.scorers import resolve_model
from worker.supervisor.places import check_accelerate, find_places
from worker.supervisor.supervisor import Supervisor

logger = logging.getLogger(__name__)


def start(
    settings: Settings,
    *,
    gpus: str,
    workers: int | None,
    name: str | None,
    exit_when_idle: str | None,
    on_idle: str | None,
    log_level: str,
) -> int:
    """Run the workers of this machine until they are stopped. Returns the exit code. Raises UsageError before any starts.

    `workers` None: one for each GPU. `exit_when_idle` is a duration, and `on_idle` a shell command.
    """
    idle_seconds = parse_duration(exit_when_idle) if exit_when_idle else None
    if on_idle and idle_seconds is None:
        raise UsageError("--on-idle runs after --exit-when-idle. Say after how long, such as --exit-when-idle 10m.")
    check_accelerate(settings.gpus_per_worker)
    places = find_places(
        gpus=gpus,
        workers=workers,
        gpus_per_worker=settings.gpus_per_worker,
        device=settings.device,
        name=name,
    )
    log_to_stderr(log_level)
    ledger = Ledger.connect(settings, wait_seconds=settings.redis_wait_seconds)
    wanted = _wanted(settings)
    supervisor = Supervisor(
        places,
        ledger,
        wanted=wanted,
        idle_seconds=idle_seconds,
        stop_seconds=settings.stop_seconds,
        log_level=log_level,
    )
    code = supervisor.run()
    if on_idle and supervisor.ended_idle:
        code = _run_on_idle(on_idle) or code
    return code


def _wanted(settings: Settings) -> Wanted:
    """What the user has named. Models are looked up now, so that a wrong name ends the command before a worker starts."""
    named = settings.model_fields_set
    scorer = settings.scorer if "scorer" in named else None
    dtype = settings.dtype if "dtype" in named else None
    if "model" not in named:
        return Wanted(scorer=scorer, dtype=dtype)
    models = tuple(resolve_model(settings.scorer, name, revision) for name, revision in settings.models)
    any_revision = not any(revision for _, revision in settings.models)
    return Wanted(scorer=scorer, models=models, any_revision=any_revision, dtype=dtype)


def _run_on_idle(command: str) -> int:
    logger.info("Running: %s", command)
    code = subprocess.run(command, shell=True, check=False).returncode
    if code:
        logger.error("The command of --on-idle ended with exit code %d", code)
    return code
