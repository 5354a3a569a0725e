"""The figures of a storm are right: repeated work, recovery times, and one schedule per seed."""

from itertools import islice
from pathlib import Path

from chaos.events import Event
from chaos.kinds import Fault, Kind
from chaos.recovery import History, recoveries
from chaos.redone import work
from chaos.schedule import Schedule

RUN, SHARD = "a-run", "000_00000"
KILL = Fault(kind=Kind.GROUP, at=10.0, victim="w1", owners=("w1@host/10",))


def claim(at: float, token: str, *, worker: str, parent: int, pid: int, shard: str = SHARD) -> Event:
    owner = f"{worker}@host/{parent}"
    return Event(at=at, what="claim", pid=pid, parent=parent, run=RUN, shard=shard, token=token, owner=owner)


def complete(at: float, token: str, pid: int) -> Event:
    return Event(at=at, what="complete", pid=pid, parent=1, run=RUN, shard=SHARD, token=token)


def looks(*moments: float) -> list[Event]:
    return [Event(at=at, what="due", pid=99, parent=1, run=RUN) for at in moments]


def test_a_seed_is_a_schedule_and_another_seed_another() -> None:
    first, again, other = (list(islice(Schedule(seed, lease_seconds=2).of_worker("w1"), 50)) for seed in (1, 1, 2))

    assert first == again
    assert first != other


def test_a_killed_worker_has_recovered_when_its_shard_is_claimed_again() -> None:
    due = Event(at=12.4, what="due", pid=99, parent=1, run=RUN, shards=(SHARD,))
    events = [
        claim(9.0, "1-a", worker="w1", parent=10, pid=11),
        claim(13.0, "2-b", worker="w2", parent=20, pid=21),
        complete(14.0, "2-b", 21),
        *looks(10.2, 10.7, 11.2, 11.7, 12.2, 12.7),
        due,
    ]

    (found,) = recoveries([KILL], History(events, {99}), sweep_seconds=0.5)

    assert (found.shard, found.seconds, found.is_calm) == (SHARD, 3.0, True)
    assert found.due_seconds is not None
    assert round(found.due_seconds, 3) == 2.4


def test_a_worker_between_two_shards_has_nothing_to_recover() -> None:
    events = [claim(9.0, "1-a", worker="w1", parent=10, pid=11), complete(9.5, "1-a", 11)]

    assert recoveries([KILL], History(events, set()), sweep_seconds=1) == []


def test_a_killed_supervisor_has_a_recovery_for_each_shard_of_its_workers() -> None:
    owners = ("m1-0@host/10", "m1-1@host/20")
    events = [
        claim(9.0, "1-a", worker="m1-0", parent=10, pid=11),
        claim(9.5, "2-b", worker="m1-1", parent=20, pid=21, shard="000_00001"),
        claim(12.0, "3-c", worker="w1", parent=30, pid=31),
        claim(13.0, "4-d", worker="w1", parent=30, pid=31, shard="000_00001"),
    ]

    found = recoveries(
        [Fault(kind=Kind.SUPERVISOR, at=10.0, victim="m1", owners=owners)], History(events, {99}), sweep_seconds=5
    )

    assert {(recovery.shard, recovery.seconds) for recovery in found} == {(SHARD, 2.0), ("000_00001", 3.0)}


def test_no_recovery_is_calm_while_redis_is_away_or_no_finalizer_sweeps() -> None:
    events = [claim(9.0, "1-a", worker="w1", parent=10, pid=11), claim(13.0, "2-b", worker="w2", parent=20, pid=21)]
    outage = Fault(kind=Kind.REDIS, at=11, victim="redis", over_at=12)
    swept = looks(10.3, 10.8, 11.3, 11.8, 12.3, 12.8)

    (unswept,) = recoveries([KILL], History(events, {99}), sweep_seconds=0.5)
    (away, _) = recoveries([KILL, outage], History([*events, *swept], {99}), sweep_seconds=0.5)

    assert not unswept.is_calm
    assert not away.is_calm


def test_no_recovery_is_calm_whose_shard_was_damaged_or_taken_back_by_a_power_loss() -> None:
    events = [claim(9.0, "1-a", worker="w1", parent=10, pid=11), claim(13.0, "2-b", worker="w2", parent=20, pid=21)]
    history = History([*events, *looks(10.3, 10.8, 11.3, 11.8, 12.3, 12.8)], {99})
    power_loss = Fault(kind=Kind.POWER, at=60, victim="redis", over_at=61)

    (calm,) = recoveries([KILL], history, sweep_seconds=0.5)
    (damaged,) = recoveries([KILL], history, sweep_seconds=0.5, damaged={(RUN, SHARD)})
    (taken_back, *_) = recoveries([KILL, power_loss], history, sweep_seconds=0.5)

    assert calm.is_calm
    assert not damaged.is_calm
    assert not taken_back.is_calm


def test_rows_scored_again_are_attributed_to_the_attempt_that_lost_them(tmp_path: Path) -> None:
    log = tmp_path / "work.log"
    log.write_text("9.1 11 2 aa,bb\n9.2 11 2 cc,dd\n13.1 21 2 cc,dd\n13.2 21 2 ee,ff\n")
    events = [claim(9.0, "1-a", worker="w1", parent=10, pid=11), claim(13.0, "2-b", worker="w2", parent=20, pid=21)]

    found = work(log, events)

    assert (found.scored, found.redone) == (8, 2)
    assert found.lost_rows == {"1-a": 2}
