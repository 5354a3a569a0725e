"""The limits on what a fault may cost, in time and in work. Pure functions."""

from collections.abc import Iterator, Sequence

from chaos.fleet import FleetPlan
from chaos.kinds import KILLS_OF_WORKERS, NOTICES, Kind
from chaos.promises import Broken, Promise
from chaos.recovery import Recovery

_CHILD_SECONDS = 5.0  # besides loading the model: the parent waits a second for a dead child's last message
_BUSY_SECONDS = 1.0  # for three processes in a row that wait for a core
_VANISHED = (Kind.PARENT, Kind.GROUP, Kind.SUPERVISED, Kind.FREEZE)
_STOPS = (*NOTICES, Kind.SUPERVISOR)  # its workers stop when it is gone


def broken_bounds(lost: Sequence[tuple[Recovery, int]], plan: FleetPlan, *, load_seconds: float) -> Iterator[Broken]:
    """Checks only undisturbed recoveries: while Redis is down, no worker can claim a shard or store a checkpoint."""
    for recovery, rows in lost:
        if recovery.is_calm:
            for what in (*_too_slow(recovery, plan, load_seconds), *_too_much_lost(recovery, rows, plan)):
                yield Broken(Promise.TOO_DEAR, what)


def longest_wait(recovery: Recovery, plan: FleetPlan, load_seconds: float) -> float | None:
    """Longest time from the fault until the shard is sent again or, for a killed child, until it is claimed."""
    if recovery.kind == Kind.CHILD:
        return load_seconds + _CHILD_SECONDS
    if recovery.kind in _VANISHED:
        lived_on = 0.0 if recovery.kind == Kind.FREEZE else recovery.ended_seconds
        return lived_on + plan.lease_seconds + plan.sweep_seconds + _BUSY_SECONDS
    return None


def most_rows(kind: Kind, plan: FleetPlan) -> int | None:
    """Most rows that may be scored again: one window for a kill, one batch for a stop."""
    if kind in KILLS_OF_WORKERS:
        return plan.window_rows
    return plan.rows_a_batch if kind in _STOPS else None


def _too_slow(recovery: Recovery, plan: FleetPlan, load_seconds: float) -> Iterator[str]:
    wait = recovery.seconds
    if recovery.kind in _VANISHED and recovery.due_seconds is not None:
        wait = recovery.due_seconds
    longest = longest_wait(recovery, plan, load_seconds)
    if longest is not None and wait > longest:
        yield f"{_name(recovery)} took {wait:.1f} s, and may take {longest:.1f} s"


def _too_much_lost(recovery: Recovery, rows: int, plan: FleetPlan) -> Iterator[str]:
    most = most_rows(recovery.kind, plan)
    if most is not None and rows > most:
        yield f"{_name(recovery)} lost {rows} rows, and may lose {most}"


def _name(recovery: Recovery) -> str:
    return f"{recovery.kind} of {recovery.victim} at {recovery.at:.3f} ({recovery.shard}, token {recovery.token})"
