"""What `producer debug-dump` collects: versions, machine, settings, the doctor's lines, the ledger's view of runs, logs."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, TypeVar

import redis

from fleet.cores import usable_cores
from fleet.doctor.checks import Result, diagnose
from fleet.errors import NewerVersion, ShardsiftError
from fleet.ledger import Ledger
from fleet.ledger.rights import WORKER
from fleet.settings import Settings
from fleet.training.task import FleetTraining, is_training_id
from fleet.workers import list_workers
from producer.debug_dump.archive import Entry
from producer.debug_dump.secrets import is_secret_variable
from producer.doctor.checks import producer_checks
from producer.opening import open_ledger
from producer.status import Present, run_status
from producer.training.status import training_status

_LOG_BYTES = 256 << 10  # of each log, its end
_MOST_LOGS = 30
_NVIDIA_SMI_SECONDS = 20
_T = TypeVar("_T")
_PACKAGE = "shardsift"
_LONG_OF_TRAININGS = {"workers", "machines", "unable", "running", "progress", "model"}
_LEFT_OUT = "left out"
_FAILURES_OF_OTHER_RUNS = 20  # in runs.json, without their tracebacks
_VARIABLE = re.compile(
    r"^(SHARDSIFT|REDIS|HF|HUGGING|CUDA|NVIDIA|OMP|MKL|TORCH|TOKENIZERS|AWS|FSSPEC|CELERY|LOKY)_|_PROXY$", re.I
)
_SECTIONS = ("server", "clients", "memory", "persistence", "stats", "replication", "errorstats", "keyspace")
_README = """\
What `producer debug-dump` found. It read this machine and the ledger.

versions.json     shardsift, Python and the packages that shardsift uses
machine.json      the operating system, cores and memory
settings.json     settings: those that are "set" here, and those that have their "default"
environment.json  variables that shardsift and its libraries read
doctor.json       the lines of `producer doctor`
workers.json      the workers of the fleet, as they announce themselves
redis_info.json   sections of Redis' INFO
runs.json         the state of each run, newest first, with the errors of its first failed shards
trainings.json    the state of each training of `producer train`, newest first, with its last error
run.json          the run that was named, by default the newest: spec, state, and each failed shard with its attempts, last
                  error and traceback
training.json     the training that was named, by default the newest: spec, state, steps, losses, attempts, last error and
                  traceback

Parts that could not be read say why. run.json and training.json are only there if the fleet has runs and trainings. Without
a Redis that answers, all from workers.json on are missing.

{kept}
The finalizer and the workers of a fleet log to stderr, so this archive does not hold their logs. On their machines,
collect them with the command for how they were started, and send them too:

docker compose logs --no-color --timestamps --since 24h > shardsift.log
journalctl --unit 'shardsift-*' --since '24 hours ago' > shardsift.log
kubectl logs --namespace shardsift --selector app=shardsift-worker --timestamps --since 24h --tail -1 > shardsift.log
cat shardsift-*.log > shardsift.log       # of Slurm, in the folder where sbatch was called
"""


def entries(settings: Settings, run_id: str | None) -> Iterator[Entry]:
    """The files of the archive. A part that fails gives its reason instead."""
    yield Entry(name="README.txt", content=readme(settings))
    yield Entry(name="versions.json", content=_versions())
    yield Entry(name="machine.json", content=_machine())
    yield Entry(name="settings.json", content=_settings(settings))
    yield Entry(name="environment.json", content=_environment())
    if shutil.which("nvidia-smi"):
        yield Entry(name="nvidia-smi.txt", content=_nvidia_smi())
    lines = list(diagnose(producer_checks(settings)))
    yield Entry(name="doctor.json", content=[asdict(line) for line in lines])
    if any(line.check == "redis" and line.result is Result.OK for line in lines):
        yield from _ledger(settings, run_id)
    yield from _logs(settings.state_dir)


def readme(settings: Settings) -> str:
    """What each file of the archive is, and which logs it cannot hold."""
    folder = settings.state_dir
    kept = (
        f"logs/ and redis/ are the ends of the logs in {folder}." if _log_files(folder) else f"No logs lie in {folder}."
    )
    return _README.format(kept=kept)


def _settings(settings: Settings) -> dict[str, dict[str, object]]:
    """What the user has set, apart from what is only the default."""
    every, named = settings.model_dump(mode="json"), settings.model_fields_set
    return {
        "set": {name: value for name, value in every.items() if name in named},
        "default": {name: value for name, value in every.items() if name not in named},
    }


def _versions() -> dict[str, str]:
    names = {re.split(r"[\s\[<>=!~;(]", line, maxsplit=1)[0] for line in requires(_PACKAGE) or ()}
    return {"python": sys.version, **{name: found for name in (_PACKAGE, *sorted(names)) if (found := _version(name))}}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:  # of an extra that is not installed
        return None


def _machine() -> dict[str, object]:
    return {
        "platform": platform.platform(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores().usable,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def _environment() -> dict[str, str]:
    """Variables that the product and its libraries read. Of a secret one, only that it is set."""
    chosen = {name: value for name, value in sorted(os.environ.items()) if _VARIABLE.search(name)}
    return {name: "***" if is_secret_variable(name) else value for name, value in chosen.items()}


def _nvidia_smi() -> str:
    try:
        done = subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=_NVIDIA_SMI_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"
    return done.stdout + done.stderr


def _ledger(settings: Settings, run_id: str | None) -> Iterator[Entry]:
    """Raises UsageError for a run that the ledger does not have."""
    with ExitStack() as stack:
        try:
            _, ledger = stack.enter_context(open_ledger(settings, role=WORKER))
        except ShardsiftError as error:
            yield Entry(name="ledger.json", content={_LEFT_OUT: str(error)})
            return
        named = run_id or ""
        if named:
            with suppress(NewerVersion):
                (ledger.trainings if is_training_id(named) else ledger).spec(named)
        yield Entry(name="workers.json", content=_part(lambda: [asdict(one) for one in list_workers(ledger.redis)]))
        yield Entry(
            name="redis_info.json", content=_part(lambda: {name: ledger.redis.info(name) for name in _SECTIONS})
        )
        yield Entry(name="runs.json", content=_part(lambda: _runs(ledger)))
        yield Entry(name="trainings.json", content=_part(lambda: _trainings(ledger.trainings)))
        yield from _one("run.json", "" if is_training_id(named) else named, ledger, partial(_run, ledger))
        training = named if is_training_id(named) else ""
        yield from _one("training.json", training, ledger.trainings, partial(_training, ledger.trainings))


def _one(file: str, named: str, ledger: Ledger[Any], read: Callable[[str], dict[str, object]]) -> Iterator[Entry]:
    """The file of the run or training that was named, or of the newest. None if there is none."""
    try:
        chosen = [named] if named else ledger.run_ids()[:1]
    except redis.RedisError as error:
        chosen = []
        yield Entry(name=file, content=_left_out(error))
    for one in chosen:
        yield Entry(name=file, content=_part(partial(read, one)))


def _part(read: Callable[[], _T]) -> _T | dict[str, str]:
    """What `read` returns, or why it fails: a bug report may be about that."""
    try:
        return read()
    except Exception as error:
        return _left_out(error)


def _left_out(error: Exception) -> dict[str, str]:
    return {_LEFT_OUT: f"{type(error).__name__}: {error}"}


def _run(ledger: Ledger, run_id: str) -> dict[str, object]:
    status = run_status(ledger, run_id)
    return {"spec": asdict(ledger.spec(run_id)), "receipts": status.counts.done, **status.as_json()}


def _runs(ledger: Ledger) -> list[dict[str, object]]:
    present = Present.read(ledger.redis)
    return [{"run_id": run_id, **_part(partial(_state, ledger, run_id, present))} for run_id in ledger.run_ids()]


def _state(ledger: Ledger, run_id: str, present: Present) -> dict[str, object]:
    """The state of one of many runs: as in run.json, without what is long or concerns the whole fleet."""
    status = run_status(ledger, run_id, present=present)
    every = {name: value for name, value in status.as_json().items() if name not in ("workers", "refused", "failures")}
    first = [asdict(failure) | {"traceback": None} for failure in status.failures[:_FAILURES_OF_OTHER_RUNS]]
    return {**every, "failures": first}


def _training(ledger: Ledger[FleetTraining], training_id: str) -> dict[str, object]:
    """Without a look at its output, which may be anywhere."""
    return training_status(ledger, training_id, looks=False).as_json()


def _trainings(ledger: Ledger[FleetTraining]) -> list[dict[str, object]]:
    present = Present.read(ledger.redis)
    return [{"run_id": one, **_part(partial(_state_of_training, ledger, one, present))} for one in ledger.run_ids()]


def _state_of_training(ledger: Ledger[FleetTraining], training_id: str, present: Present) -> dict[str, object]:
    """The state of one of many trainings: as in training.json, without what is long or concerns the whole fleet."""
    every = training_status(ledger, training_id, present=present, looks=False).as_json()
    shown = {name: value for name, value in every.items() if name not in _LONG_OF_TRAININGS}
    errors = {
        name: found | {"traceback": None} for name in ("failure", "retry") if isinstance(found := every[name], dict)
    }
    return {**shown, **errors}


def _logs(state_dir: Path) -> Iterator[Entry]:
    for log in _log_files(state_dir):
        yield Entry(name=str(log.relative_to(state_dir)), content=_end_of(log))


def _log_files(state_dir: Path) -> list[Path]:
    """The newest logs of `producer run`. Workers and finalizers of a fleet log to stderr, not to files."""
    found = [*state_dir.glob("logs/*.log"), *state_dir.glob("redis/*.log")]
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)[:_MOST_LOGS]


def _end_of(log: Path) -> str:
    """The last lines. The first of them is left out if it is cut: half a secret does not look like one."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOG_BYTES))
            content = file.read()
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    whole_lines = content if size <= _LOG_BYTES else content.partition(b"\n")[2]
    return whole_lines.decode(errors="replace")
