"""The kinds of faults, and the record of each that was put in. What is done to whom is in `victims.py`."""

from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """What is done to one process of the fleet, or to the network before it."""

    CHILD = "child"  # SIGKILL of the process that scores
    PARENT = "parent"  # SIGKILL of a worker's main process; its child goes with it, a moment later
    GROUP = "group"  # SIGKILL of all of a worker's processes at once: the machine is gone
    FINALIZER = "finalizer"  # SIGKILL
    REDIS = "redis"  # SIGKILL, and a start from its append-only file after a pause
    POWER = "power"  # the same, and the last writes are missing, or an older copy of its data is put back
    PRODUCER = "producer"  # SIGKILL of `producer enqueue`; the same command is run again
    NOTICE_PARENT = "notice-parent"  # SIGTERM, as by `docker stop`
    NOTICE_GROUP = "notice-group"  # SIGTERM to parent and child, as by Ctrl-C or a shutdown
    FREEZE = "freeze"  # SIGSTOP of a worker for longer than a lease, then SIGCONT: a zombie
    FREEZE_REDIS = "freeze-redis"  # SIGSTOP for a while
    CUT = "cut"  # all connections of a worker to Redis are reset
    HALF_OPEN = "half-open"  # they swallow all that is sent, for a while, then are reset
    DELAY = "delay"  # what they carry arrives late, for a while
    STAGED = "staged"  # a finished file that is not yet published is changed, cut short, emptied or deleted
    INPUT = "input"  # an input file is replaced by one with other rows, and put back after a while
    OUTPUT = (
        "output"  # a published file, or the whole output, is damaged or deleted; then the same command is run again
    )


KILLS = (Kind.CHILD, Kind.PARENT, Kind.GROUP, Kind.FINALIZER, Kind.REDIS)
NOTICES = (Kind.NOTICE_PARENT, Kind.NOTICE_GROUP)
OF_WORKERS = (
    *(Kind.CHILD, Kind.PARENT, Kind.GROUP, *NOTICES),
    *(Kind.FREEZE, Kind.CUT, Kind.HALF_OPEN, Kind.DELAY),
)
OF_REDIS = (Kind.REDIS, Kind.POWER, Kind.FREEZE_REDIS)
OF_FILES = frozenset({Kind.STAGED, Kind.INPUT, Kind.OUTPUT})


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A fault to come. `after_seconds` from when its victim is seen at work; what does not last has 0 seconds."""

    kind: Kind
    after_seconds: float
    lasts_seconds: float = 0.0
    at_the_end_of_a_run: bool = False  # a finalizer's: wait until a run is about to be published


@dataclass(kw_only=True)
class Fault:
    """A fault that was put in. Times are Unix seconds, which are Redis' own on this machine."""

    kind: Kind
    at: float
    victim: str  # a worker's name, "finalizer-1", "redis", or the number of a run
    pid: int = 0  # of the parent, where the victim is a worker; part of who owns a claim
    over_at: float | None = field(default=None)  # what lasts: when it ended; what ends a process: when that was gone
