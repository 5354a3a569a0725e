"""What `producer debug-dump` collects: versions, machine, settings, the doctor's lines, the ledger's view of a run, logs."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from fleet.cores import usable_cores
from fleet.doctor.checks import Result, diagnose
from fleet.errors import NewerVersion, ShardsiftError
from fleet.ledger import Ledger
from fleet.settings import Settings
from fleet.workers import list_workers
from producer.debug_dump.archive import Entry
from producer.debug_dump.secrets import is_secret_variable
from producer.doctor.checks import producer_checks
from producer.opening import open_ledger
from producer.status import run_status

_LOG_BYTES = 256 << 10  # of each log, its end
_MOST_LOGS = 30
_NVIDIA_SMI_SECONDS = 20
_PACKAGE = "shardsift"
_LEFT_OUT = "left out"
_VARIABLE = re.compile(
    r"^(SHARDSIFT|REDIS|HF|HUGGING|CUDA|NVIDIA|OMP|MKL|TORCH|TOKENIZERS|AWS|FSSPEC|CELERY|LOKY)_|_PROXY$", re.I
)
_SECTIONS = ("server", "clients", "memory", "persistence", "stats", "replication", "errorstats", "keyspace")


def entries(settings: Settings, run_id: str | None) -> Iterator[Entry]:
    """The files of the archive. A part that fails gives its reason instead."""
    yield Entry(name="versions.json", content=_versions())
    yield Entry(name="machine.json", content=_machine())
    yield Entry(name="settings.json", content=settings.model_dump(mode="json"))
    yield Entry(name="environment.json", content=_environment())
    if shutil.which("nvidia-smi"):
        yield Entry(name="nvidia-smi.txt", content=_nvidia_smi())
    lines = list(diagnose(producer_checks(settings)))
    yield Entry(name="doctor.json", content=[asdict(line) for line in lines])
    if any(line.check == "redis" and line.result is Result.OK for line in lines):
        yield from _ledger(settings, run_id)
    yield from _logs(settings.state_dir)


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
            _, ledger = stack.enter_context(open_ledger(settings))
        except ShardsiftError as error:
            yield Entry(name="ledger.json", content={_LEFT_OUT: str(error)})
            return
        if run_id is not None:
            with suppress(NewerVersion):
                ledger.spec(run_id)
        yield Entry(name="workers.json", content=_part(lambda: [asdict(one) for one in list_workers(ledger.redis)]))
        yield Entry(
            name="redis_info.json", content=_part(lambda: {name: ledger.redis.info(name) for name in _SECTIONS})
        )
        yield Entry(name="runs.json", content=_part(ledger.run_ids))
        yield Entry(name="run.json", content=_part(lambda: _run(ledger, run_id or ledger.run_ids()[0])))


def _part(read: Callable[[], object]) -> object:
    """What `read` returns, or why it fails: a bug report may be about that."""
    try:
        return read()
    except Exception as error:
        return {_LEFT_OUT: f"{type(error).__name__}: {error}"}


def _run(ledger: Ledger, run_id: str) -> dict[str, object]:
    status = run_status(ledger, run_id)
    return {"spec": asdict(ledger.spec(run_id)), "receipts": status.counts.done, **status.as_json()}


def _logs(state_dir: Path) -> Iterator[Entry]:
    found = [*state_dir.glob("logs/*.log"), *state_dir.glob("redis/*.log")]
    for log in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)[:_MOST_LOGS]:
        yield Entry(name=str(log.relative_to(state_dir)), content=_end_of(log))


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
