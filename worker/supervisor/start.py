"""What `worker start` does: find the places and the models, then supervise."""

import logging
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.presence.announcements import list_machines
from fleet.presence.demand import Wanted
from fleet.process.durations import parse_duration
from fleet.process.logs import log_to_stderr
from fleet.process.settings import Settings
from fleet.run.scorers import resolve_model
from worker.supervisor.places import ALL, Place, check_accelerate, find_places
from worker.supervisor.supervisor import Supervisor

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class StartOptions:
    """The user's choices for a machine. What its workers have in common comes from the settings."""

    gpus: str = ALL
    workers: int | None = None  # None: one per GPU, on a CPU one
    name: str | None = None  # None: gpu0, gpu1, …; on a CPU worker
    exit_when_idle: str | None = None  # a duration
    on_idle: str | None = None  # a shell command
    log_level: str = "INFO"


def start(settings: Settings, options: StartOptions) -> int:
    """Run the workers of this machine until they are stopped. Returns the exit code. Raises UsageError before any starts."""
    idle_seconds = parse_duration(options.exit_when_idle) if options.exit_when_idle else None
    if options.on_idle and idle_seconds is None:
        raise UsageError("--on-idle runs after --exit-when-idle. Say after how long, such as --exit-when-idle 10m.")
    check_accelerate(settings.gpus_per_worker)
    places = find_places(
        gpus=options.gpus,
        workers=options.workers,
        gpus_per_worker=settings.gpus_per_worker,
        device=settings.device,
        name=options.name,
    )
    log_to_stderr(options.log_level)
    ledger = Ledger.connect(settings, wait_seconds=settings.redis_wait_seconds)
    wanted = _wanted(settings)
    _warn_of_others(ledger, places)
    supervisor = Supervisor(
        places,
        ledger,
        wanted=wanted,
        idle_seconds=idle_seconds,
        stop_seconds=settings.stop_seconds,
        log_level=options.log_level,
    )
    code = supervisor.run()
    if options.on_idle and supervisor.ended_idle:
        code = _run_on_idle(options.on_idle) or code
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


def _warn_of_others(ledger: Ledger, places: Sequence[Place]) -> None:
    """Two supervisors on one device share its memory and its time, which is hardly ever meant."""
    devices = {device for place in places for device in place.devices}
    for machine in list_machines(ledger.redis):
        if machine.host == socket.gethostname() and (shared := sorted(devices.intersection(machine.devices))):
            logger.warning(
                "Another `worker start` of this machine (process %d) has announced workers on the same device: %s. "
                "Unless you want both, stop one, or divide the GPUs with --gpus",
                *(machine.pid, ", ".join(shared)),
            )


def _run_on_idle(command: str) -> int:
    logger.info("Running: %s", command)
    code = subprocess.run(command, shell=True, check=False).returncode
    if code:
        logger.error("The command of --on-idle ended with exit code %d", code)
    return code
