"""Do a run on one machine: embedded Redis, finalizer, one worker per GPU. No process is left running afterwards."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from celery import Celery

from fleet.broker import make_app
from fleet.command_line import own_command
from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.queues import drop_messages
from fleet.scorers import ScorerKind, check_requirements, scorer_kind
from fleet.settings import Settings
from fleet.spec import RunSpec
from producer.enqueue import Enqueued, enqueue
from producer.finalizer.program import ONLY_RUN
from producer.local.processes import Child, running, terminate
from producer.local.redis_server import embedded_redis
from producer.plan import Plan
from producer.progress import watch
from producer.same_run import same_run
from producer.status import RunStatus, looked_at

OnLook = Callable[[Ledger, str, list[Child]], None]  # with the id of the run
_SWEEP_SECONDS = 2.0  # on one machine a sweep costs nothing
_STOP_SECONDS = 60.0  # a worker stops between two batches, so this must exceed the longest batch


def run_locally(
    plan: Plan,
    settings: Settings,
    *,
    workers: int | None,
    verify: bool = False,
    progress: bool = True,
    on_enqueued: Callable[[Enqueued], None] = lambda enqueued: None,
    on_look: OnLook = lambda ledger, run_id, workers: None,
) -> RunStatus:
    """Do a run with processes on this machine, and return how it ended. Raises UsageError, KeyboardInterrupt on Ctrl-C.

    The same plan resumes an interrupted run. With `progress`, it is shown on stderr. `on_look` is called twice a second with
    the worker processes.
    """
    kinds = [scorer_kind(scoring.served_by.scorer) for scoring in plan.spec.scorings]
    check_requirements(kinds)
    with _sigterm_interrupts(), machine_redis(settings, create=True) as settings, _clients(settings) as (ledger, app):
        plan = replace(plan, spec=same_run(plan.spec, plan.shards, ledger))
        if settings.redis_is_embedded:
            _forget_the_dead(ledger, plan.spec)
        on_enqueued(enqueue(plan, ledger, app, resend_seconds=settings.resend_seconds, verify=verify))
        with ExitStack() as stack:
            finalizer = stack.enter_context(_finalizer(plan.spec, settings))
            children = [
                stack.enter_context(_worker(plan.spec, settings, f"worker-{number}", devices))
                for number, devices in enumerate(_devices(workers, kinds, shards=len(plan.shards)))
            ]
            stack.callback(terminate, finalizer, *children)

            def look() -> None:
                _check_alive(children, settings)
                on_look(ledger, plan.spec.run_id, children)

            ended = watch(ledger, plan.spec.run_id, on_look=look, progress=progress)
            return looked_at(ledger, ended, hashes=verify)


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """During the block SIGTERM raises KeyboardInterrupt, so that it also stops the children cleanly.

    Only the main thread may set handlers. A run in another thread of a notebook or a server leaves them alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)  # None: not set from Python


@contextmanager
def machine_redis(settings: Settings, *, create: bool) -> Iterator[Settings]:
    """The settings with a Redis: the fleet's if REDIS_URL names one, otherwise this machine's own.

    The machine's own is started for the block with the data of earlier runs, unless a `producer run` already runs it.
    """
    if settings.redis_url is not None:
        yield settings
        return
    data_dir = settings.state_dir / "redis"
    if not create and not data_dir.exists():
        raise UsageError("No Redis is named, and there was no `producer run` here. Set REDIS_URL.")
    data_dir.mkdir(parents=True, exist_ok=True)
    with (settings.state_dir / "redis.lock").open("a+") as lock:
        if _is_free(lock.fileno()):
            with embedded_redis(data_dir) as url:
                (settings.state_dir / "redis.url").write_text(url)
                yield _embedded(settings, url)
        elif create:
            raise UsageError(
                f"Another `producer run` is using {settings.state_dir}. Wait for it to end, or set SHARDSIFT_STATE_DIR."
            )
        else:
            yield _embedded(settings, (settings.state_dir / "redis.url").read_text())


@contextmanager
def _clients(settings: Settings) -> Iterator[tuple[Ledger, Celery]]:
    ledger = Ledger.connect(settings)
    try:
        with make_app("producer", settings, is_current=False) as app:
            yield ledger, app
    finally:
        ledger.redis.close()


def _is_free(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _embedded(settings: Settings, url: str) -> Settings:
    return settings.model_copy(update={"redis_url": url, "redis_is_embedded": True})


def _forget_the_dead(ledger: Ledger, spec: RunSpec) -> None:
    """Remove stale messages and leases. This Redis is private and no worker is running yet, so no process owns them."""
    drop_messages(ledger.redis, spec.queue)
    ledger.forget_messages(spec.run_id)


def _finalizer(spec: RunSpec, settings: Settings) -> AbstractContextManager[Child]:
    environment = {
        **_environment(settings),
        ONLY_RUN: spec.run_id,
        "SHARDSIFT_SWEEP_SECONDS": str(min(_SWEEP_SECONDS, settings.sweep_seconds)),
    }
    return _running(own_command("producer", "finalizer"), "finalizer", environment, settings)


def _worker(spec: RunSpec, settings: Settings, name: str, devices: dict[str, str]) -> AbstractContextManager[Child]:
    models = spec.served_by
    environment = {
        **_environment(settings),
        "SHARDSIFT_SCORER": models[0].scorer,
        "SHARDSIFT_MODEL": json.dumps([f"{model.name}@{model.revision}" for model in models]),
        "SHARDSIFT_DTYPE": spec.scorings[0].dtype,
        **devices,
    }
    return _running(own_command("worker", "start", "--name", name), name, environment, settings)


def _running(
    command: list[str], name: str, environment: dict[str, str], settings: Settings
) -> AbstractContextManager[Child]:
    return running(command, log=_log(settings, name), stop_seconds=_STOP_SECONDS, environment=environment)


def _environment(settings: Settings) -> dict[str, str]:
    return {
        "REDIS_URL": settings.ledger_url or "",
        "SHARDSIFT_STATE_DIR": str(settings.state_dir),
        "SHARDSIFT_LEASE_SECONDS": str(settings.lease_seconds),
    }


def _log(settings: Settings, name: str) -> Path:
    return settings.state_dir / "logs" / f"{name}.log"


def _devices(workers: int | None, kinds: Sequence[ScorerKind], *, shards: int) -> list[dict[str, str]]:
    """The environment of each worker: one GPU, or its share of the CPU threads."""
    cores = os.cpu_count() or 1
    if not any(kind.uses_gpu for kind in kinds):
        return [{"SHARDSIFT_THREADS": "1", "OMP_NUM_THREADS": "1"}] * (workers or min(cores, shards))
    gpus = _gpus()
    if gpus:
        return [{"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]} for number in range(workers or len(gpus))]
    count = workers or 1
    threads = max(1, cores // count)
    return [{"SHARDSIFT_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)} for _ in range(count)]


def _gpus() -> list[str]:
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return visible.split(",")
    if shutil.which("nvidia-smi") is None:
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return [str(number) for number, line in enumerate(listed.stdout.splitlines()) if line.startswith("GPU ")]


def _check_alive(workers: list[Child], settings: Settings) -> None:
    """Raises UsageError when no worker is left."""
    if all(worker.poll() is not None for worker in workers):
        log = _log(settings, "worker-0")
        last_line = log.read_text(errors="replace").rstrip().rpartition("\n")[2]
        raise UsageError(f"All workers have ended. Last line of worker 0's log: {last_line} (The whole log: {log})")
