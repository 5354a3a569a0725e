"""The kinds of faults, and the record of each injected fault. `victims.py` injects them."""

from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """A fault of one process, of its network, or of a run's files; or what an operator does to a run."""

    CHILD = "child"  # SIGKILL of the process that scores
    PARENT = "parent"  # SIGKILL of a worker's main process; its child ends a moment later
    GROUP = "group"  # SIGKILL of all of a worker's processes at once: the machine is gone
    FINALIZER = "finalizer"  # SIGKILL
    REDIS = "redis"  # SIGKILL, and a restart from its append-only file after a pause
    POWER = "power"  # the same, but the last writes are lost or an older copy of its data is restored
    PRODUCER = "producer"  # SIGKILL of `producer enqueue`; the same command is run again
    NOTICE_PARENT = "notice-parent"  # SIGTERM, as by `docker stop`
    NOTICE_GROUP = "notice-group"  # SIGTERM to parent and child, as by Ctrl-C or a shutdown
    FREEZE = "freeze"  # SIGSTOP of a worker for longer than a lease, then SIGCONT: a zombie
    FREEZE_REDIS = "freeze-redis"  # SIGSTOP for a while
    CUT = "cut"  # all connections of a worker to Redis are reset
    HALF_OPEN = "half-open"  # for a while they drop everything that is sent; then they are reset
    DELAY = "delay"  # for a while everything arrives late
    SUPERVISOR = "supervisor"  # SIGKILL of a machine's `worker start`; the kernel sends its workers SIGTERM
    SUPERVISED = "supervised"  # SIGKILL of one of a machine's workers, which the supervisor starts again
    NOTICE_SUPERVISOR = "notice-supervisor"  # SIGTERM of `worker start`, which passes it on to its workers
    FREEZE_SUPERVISOR = "freeze-supervisor"  # SIGSTOP of `worker start` for a while; its workers go on
    STAGED = "staged"  # a staged file is changed, truncated, emptied or deleted
    INPUT = "input"  # an input file is replaced by one with other rows, and restored after a while
    OUTPUT = (
        "output"  # a published file, or the whole output, is damaged or deleted; then the same command is run again
    )
    PAUSE = "pause"  # `producer pause` of a run, and `producer resume` after a while
    LIMIT = "limit"  # `--max-workers` of a run


KILLS_OF_WORKERS = (Kind.CHILD, Kind.PARENT, Kind.GROUP, Kind.SUPERVISED)
KILLS = (*KILLS_OF_WORKERS, Kind.SUPERVISOR, Kind.FINALIZER, Kind.REDIS)
NOTICES = (Kind.NOTICE_PARENT, Kind.NOTICE_GROUP, Kind.NOTICE_SUPERVISOR)
OF_MACHINES = (Kind.SUPERVISOR, Kind.SUPERVISED, Kind.NOTICE_SUPERVISOR, Kind.FREEZE_SUPERVISOR)
OF_FILES = frozenset({Kind.STAGED, Kind.INPUT, Kind.OUTPUT})


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A planned fault, `after_seconds` after its victim is seen working. `seconds` is 0 for faults without duration."""

    kind: Kind
    after_seconds: float
    lasts_seconds: float = 0.0
    at_the_end_of_a_run: bool = False  # a finalizer's: wait until a run is about to be published


@dataclass(kw_only=True)
class Fault:
    """An injected fault. Times are Unix seconds; Redis uses the same clock."""

    kind: Kind
    at: float
    victim: str  # a worker's or machine's name, "finalizer-1", "redis", or the number of a run
    owners: tuple[str, ...] = ()  # of the claims of the workers that it hits: <worker>@<host>/<pid of the parent>
    over_at: float | None = field(default=None)  # what lasts: when it ended; what ends a process: when that was gone
