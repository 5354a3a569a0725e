"""Do a run on one machine: embedded Redis, finalizer, one worker per GPU. No process is left running afterwards."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from celery import Celery
from loky import cpu_count

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.presence.demand import Load
from shardsift.fleet.process.broker import drop_messages, make_app
from shardsift.fleet.process.children import Child, handling, running, terminate
from shardsift.fleet.process.command_line import own_command, say
from shardsift.fleet.process.settings import Settings, check_state_dir
from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.scorers import ScorerKind, check_requirements, scorer_kind
from shardsift.fleet.run.spec import RunSpec
from shardsift.producer.finalizer import ONLY_RUN
from shardsift.producer.local.redis import machine_redis
from shardsift.producer.planning.enqueue import Enqueued, enqueue
from shardsift.producer.planning.plan import Plan
from shardsift.producer.planning.refilter import plan_refilter
from shardsift.producer.publishing.publish import looked_at
from shardsift.producer.status import RunStatus, run_status
from shardsift.producer.status.watch import watch

OnLook = Callable[[Ledger, str], None]  # with the id of the run
_WORKERS = "workers"  # name of their log
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
    on_look: OnLook = lambda ledger, run_id: None,
) -> RunStatus:
    """Do a run with processes on this machine, and return how it ended. Raises UsageError, KeyboardInterrupt on Ctrl-C.

    The same plan resumes an interrupted run. With `progress`, it is shown on stderr. `on_look` is called twice a second.
    """
    ended = _one_run(
        plan, settings, workers=workers, verify=verify, progress=progress, on_enqueued=on_enqueued, on_look=on_look
    )
    return choose_locally(
        plan, ended, settings, workers=workers, verify=verify, progress=progress, on_enqueued=on_enqueued
    )


def choose_locally(
    plan: Plan,
    ended: RunStatus,
    settings: Settings,
    *,
    workers: int | None = None,
    verify: bool = False,
    progress: bool = True,
    on_enqueued: Callable[[Enqueued], None] = lambda enqueued: None,
) -> RunStatus:
    """Do the run that chooses rows by the scores of `plan`, if there is one and these are published. Returns how all ended."""
    if not plan.then:
        return ended
    told = say if progress else lambda line: None
    if not ended.is_published or ended.damage:
        told("The scores are not published yet. When they are, run the same command again: it chooses the rows.")
        return ended
    with handling(signal.SIGTERM, by=signal.default_int_handler):
        try:
            then = plan_refilter(plan.spec.output_uri, plan.then, earlier=plan.spec)
            for line in ("Second step: rows are chosen by the scores.", *then.notes):
                told(line)
            return _one_run(then, settings, workers=workers, verify=verify, progress=progress, on_enqueued=on_enqueued)
        except UsageError as error:
            scores = ended.output_uri
            raise UsageError(
                f"{error} All scores are at {scores}: `producer refilter {scores}` chooses by them."
            ) from error


def _one_run(
    plan: Plan,
    settings: Settings,
    *,
    workers: int | None,
    verify: bool,
    progress: bool,
    on_enqueued: Callable[[Enqueued], None],
    on_look: OnLook = lambda ledger, run_id: None,
) -> RunStatus:
    kinds = [scorer_kind(scoring.served_by.scorer) for scoring in plan.spec.scorings]
    check_requirements(kinds)
    check_state_dir(settings)
    with (
        handling(signal.SIGTERM, by=signal.default_int_handler),  # so that it also stops the children cleanly
        machine_redis(settings, create=True) as settings,
        _clients(settings) as (ledger, app),
    ):
        if settings.redis_is_embedded:
            _forget_the_dead(ledger, plan.spec)
        on_enqueued(enqueue(plan, ledger, app, settings, verify=verify))
        with ExitStack() as stack:
            finalizer = stack.enter_context(_finalizer(plan.spec, settings))
            supervisor = stack.enter_context(_workers(plan.spec, settings, workers, kinds, shards=len(plan.shards)))
            stack.callback(terminate, finalizer, supervisor)

            def look() -> None:
                _check_alive(supervisor, settings)
                on_look(ledger, plan.spec.run_id)

            try:
                ended = watch(
                    ledger,
                    plan.spec.run_id,
                    on_look=look,
                    is_of_this_machine=True,
                    starts_workers=True,
                    outlasts_redis=not settings.redis_is_embedded,
                    progress=progress,
                )
            except KeyboardInterrupt:
                if progress:
                    say("Stopping: the workers end their batch and store its scores.")
                stack.close()  # meanwhile, the finalizer ends what it publishes
                ended = run_status(ledger, plan.spec.run_id)
                if not ended.is_published or plan.then:
                    if progress:
                        shards = counted(ended.counts.shards, "shard")
                        say(f"Kept: {ended.counts.done:,} of {shards}, and what the others have scored.")
                    raise
            return looked_at(ledger, ended, hashes=verify)


@contextmanager
def _clients(settings: Settings) -> Iterator[tuple[Ledger, Celery]]:
    ledger = Ledger.connect(settings)
    try:
        with make_app("producer", settings, is_current=False) as app:
            yield ledger, app
    finally:
        ledger.redis.close()


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
    return _running(own_command("finalizer"), "finalizer", environment, settings)


def _workers(
    spec: RunSpec, settings: Settings, workers: int | None, kinds: Sequence[ScorerKind], *, shards: int
) -> AbstractContextManager[Child]:
    """`worker start`, for this run's models: one worker per GPU, or one per core if the scorer uses no GPU."""
    arguments = []
    if not any(kind.uses_gpu for kind in kinds):
        arguments = ["--device", "cpu"]
        workers = workers or min(cpu_count(), shards)
    if workers:
        arguments += ["--workers", str(workers)]
    environment = {**_environment(settings), **Load.of(spec).environment}
    return _running(own_command("worker", "start", *arguments), _WORKERS, environment, settings)


def _running(
    command: list[str], name: str, environment: dict[str, str], settings: Settings
) -> AbstractContextManager[Child]:
    return running(command, log=_log(settings, name), stop_seconds=_STOP_SECONDS, environment=environment)


def _environment(settings: Settings) -> dict[str, str]:
    return {
        "REDIS_URL": settings.redis.url if settings.redis else "",
        "SHARDSIFT_STATE_DIR": str(settings.state_dir),
        "SHARDSIFT_LEASE_SECONDS": str(settings.lease_seconds),
    }


def _log(settings: Settings, name: str) -> Path:
    return settings.state_dir / "logs" / f"{name}.log"


def _check_alive(workers: Child, settings: Settings) -> None:
    """Raises UsageError when no worker is left and none will be started."""
    if workers.poll() is not None:
        log = _log(settings, _WORKERS)
        last_line = log.read_text(errors="replace").rstrip().rpartition("\n")[2]
        raise UsageError(f"The workers have ended. Last line of their log: {last_line} (The whole log: {log})")
