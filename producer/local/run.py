"""Do a run on one machine: embedded Redis, finalizer, one worker per GPU. No process is left running afterwards."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256

from celery import Celery

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.presence.demand import Load
from shardsift.fleet.process.broker import drop_messages, make_app
from shardsift.fleet.process.children import Kept, handling, stop
from shardsift.fleet.process.command_line import own_command, say
from shardsift.fleet.process.cores import cpu_count
from shardsift.fleet.process.settings import Settings, check_state_dir
from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.spec import RunSpec
from shardsift.fleet.scorers.kinds import ScorerKind, check_requirements, scorer_kind
from shardsift.producer.local.keeper import is_free
from shardsift.producer.local.redis import machine_redis
from shardsift.producer.planning.enqueue import Enqueued, enqueue
from shardsift.producer.planning.plan import Plan
from shardsift.producer.publishing.publish import with_findings
from shardsift.producer.status import RunStatus, run_status
from shardsift.producer.status.watch import watch

OnPoll = Callable[[Ledger, str], None]  # with the id of the run
_ONLY_RUN = "SHARDSIFT_ONLY_RUN"
_SWEEP_SECONDS = 2.0  # on one machine a sweep costs nothing
_STOP_SECONDS = 60.0  # a worker stops between two batches, so this must exceed the longest batch


def run_locally(
    plan: Plan,
    settings: Settings,
    *,
    workers: int | None = None,
    verify: bool = False,
    score_again: bool = False,
    progress: bool = True,
    on_enqueued: Callable[[Enqueued], None] = lambda enqueued: None,
    on_poll: OnPoll = lambda ledger, run_id: None,
) -> RunStatus:
    """Do a run with processes on this machine, and return how it ended.

    The same plan resumes an interrupted run. `progress` shows progress on stderr. `on_poll` is called twice a second. Raises
    UsageError if the run cannot start or no worker can score, KeyboardInterrupt on Ctrl-C or SIGTERM.
    """
    spec = plan.spec
    kinds = [scorer_kind(scoring.served_by.scorer) for scoring in spec.scorings]
    check_requirements(kinds)
    check_state_dir(settings)
    with (
        handling(signal.SIGTERM, by=signal.default_int_handler),  # so that SIGTERM also stops the children cleanly
        _only_one_at(spec.output_uri, settings),
        machine_redis(settings, create=True) as settings,
        _clients(settings) as (ledger, app),
    ):
        if settings.redis_is_embedded:
            # No other process is doing this run now, so its messages and leases are stale.
            drop_messages(ledger.redis, ledger.message_queue(spec.run_id, spec.queue))
            ledger.forget_messages(spec.run_id)
        on_enqueued(enqueue(plan, ledger, app, settings, verify=verify, score_again=score_again))
        with ExitStack() as stack:
            children = [_finalizer(spec, settings), _workers(spec, settings, workers, kinds, shards=len(plan.shards))]
            stack.callback(_stop, children)

            def poll() -> None:
                for child in children:
                    news = child.tend()
                    if news and progress:
                        say(news)
                on_poll(ledger, spec.run_id)

            try:
                ended = watch(ledger, spec.run_id, on_poll=poll, starts_workers=True, progress=progress)
            except KeyboardInterrupt:
                if progress:
                    say("Stopping: the workers end their batch and store its scores.")
                stack.close()  # meanwhile, the finalizer finishes a publication in progress
                ended = run_status(ledger, spec.run_id)
                if not ended.is_published:
                    if progress:
                        shards = counted(ended.counts.shards, "shard")
                        say(f"Kept: {ended.counts.done:,} of {shards}, and what the others have scored.")
                    raise
            return with_findings(ledger, ended, hashes=verify)


@contextmanager
def _clients(settings: Settings) -> Iterator[tuple[Ledger, Celery]]:
    ledger = Ledger.connect(settings)
    try:
        with make_app("producer", settings, is_current=False) as app:
            yield ledger, app
    finally:
        ledger.redis.close()


@contextmanager
def _only_one_at(output_uri: str, settings: Settings) -> Iterator[None]:
    """Hold the lock of the output during the block. Raises UsageError if another process holds it."""
    file = settings.state_dir / "outputs" / sha256(output_uri.encode()).hexdigest()[:16]
    file.parent.mkdir(exist_ok=True)
    with file.open("a") as lock:
        if not is_free(lock):
            raise UsageError(
                f"Another `producer run` on this machine publishes to {output_uri}. Wait for it to end, or name another --output."
            )
        yield


def _finalizer(spec: RunSpec, settings: Settings) -> Kept:
    environment = {
        _ONLY_RUN: spec.run_id,
        "SHARDSIFT_SWEEP_SECONDS": str(min(_SWEEP_SECONDS, settings.sweep_seconds)),
    }
    return _kept("finalizer", own_command("finalizer"), environment, spec, settings)


def _workers(
    spec: RunSpec, settings: Settings, workers: int | None, kinds: Sequence[ScorerKind], *, shards: int
) -> Kept:
    """Start `worker start` with `workers` workers for this run's models.

    Default: one per GPU. If no scorer uses a GPU: one per core, but no more than there are shards.
    """
    arguments = []
    if not any(kind.uses_gpu for kind in kinds):
        arguments = ["--device", "cpu"]
        workers = workers or min(cpu_count(), shards)
    if workers:
        arguments += ["--workers", str(workers)]
    environment = Load.of(spec).environment
    if settings.redis_is_embedded:
        environment |= {_ONLY_RUN: spec.run_id}
    return _kept("workers", own_command("worker", "start", *arguments), environment, spec, settings)


def _kept(name: str, command: list[str], environment: dict[str, str], spec: RunSpec, settings: Settings) -> Kept:
    common = {
        "REDIS_URL": settings.redis.url if settings.redis else "",
        "REDIS_PASSWORD_FILE": str(settings.redis_password_file or ""),
        "SHARDSIFT_REDIS_IS_EMBEDDED": str(settings.redis_is_embedded),
        "SHARDSIFT_STATE_DIR": str(settings.state_dir),
        "SHARDSIFT_LEASE_SECONDS": str(settings.lease_seconds),
    }
    log = settings.state_dir / "logs" / spec.run_id / f"{name}.log"
    return Kept(name, command, log=log, environment=common | environment)


def _stop(children: Sequence[Kept]) -> None:
    for child in children:  # signal all before waiting, because each takes seconds to stop
        child.process.terminate()
    for child in children:
        stop(child.process, _STOP_SECONDS)
