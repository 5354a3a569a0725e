"""What each worker of a machine serves follows from what open shards need and which workers have none."""

from collections import Counter

import pytest

from shardsift.fleet.presence.announcements import WorkerState
from shardsift.fleet.presence.demand import Demand, Load, Wanted
from shardsift.fleet.run.model import Model
from shardsift.worker.supervisor.supervisor import free_workers, next_load


def a_model(name: str, revision: str = "1" * 40, scorer: str = "sequence-classifier") -> Model:
    return Model(name=name, revision=revision, labels=("LABEL_0",), scorer=scorer)


def a_load(*names: str, dtype: str = "auto", revision: str = "1" * 40) -> Load:
    return Load(models=tuple(a_model(name, revision) for name in names), dtype=dtype)  # type: ignore[arg-type]


def a_demand(load: Load, queued: int, running: int = 0) -> Demand:
    return Demand(load=load, queued=queued, running=running)


A, B = a_load("me/a"), a_load("me/b")


@pytest.mark.parametrize(
    ("demands", "free", "avoided", "expected"),
    [
        ([a_demand(A, 3), a_demand(B, 5)], {}, (), B),
        ([a_demand(A, 3), a_demand(B, 5)], {B.queue: 4}, (), A),
        ([a_demand(A, 3), a_demand(B, 3)], {}, (), A),  # the oldest of equal ones
        ([], {}, (), None),
        ([a_demand(A, 0, running=8)], {}, (), None),
        ([a_demand(A, 2)], {A.queue: 2}, (), None),
        ([a_demand(A, 9), a_demand(B, 1)], {}, (A,), B),  # A cannot be served here
    ],
)
def test_the_queue_that_lacks_the_most_workers_is_next(
    demands: list[Demand], free: dict[str, int], avoided: tuple[Load, ...], expected: Load | None
) -> None:
    assert next_load(demands, Counter(free), lambda load: load in avoided) == expected


def test_busy_and_stopping_workers_are_not_free() -> None:
    def state(activity: str) -> WorkerState:
        fields = {"name": "w@h/1", "queue": A.queue, "model": "me/a", "revision": "1", "dtype": "auto"}
        return WorkerState(**fields, activity=activity, activity_seconds=0.0)  # type: ignore[arg-type]

    states = map(state, ("loading", "ready", "busy", "stopping"))

    assert free_workers(states) == {A.queue: 2}


def test_a_machine_admits_everything_unless_the_user_names_something() -> None:
    assert Wanted().admits(A)
    assert Wanted().preload is None
    assert Wanted(scorer="sequence-classifier").admits(A)
    assert not Wanted(scorer="fasttext").admits(A)
    assert Wanted(dtype="float32").admits(a_load("me/a", dtype="float32"))
    assert not Wanted(dtype="float32").admits(A)


def test_a_named_model_is_served_at_the_revision_of_the_run_unless_one_is_named() -> None:
    older = a_load("me/a", revision="2" * 40)

    assert Wanted(models=A.models, any_revision=True).admits(older)
    assert not Wanted(models=A.models).admits(older)
    assert not Wanted(models=A.models, any_revision=True).admits(B)


def test_several_models_are_served_together_or_not_at_all() -> None:
    both = a_load("me/a", "me/b")

    assert Wanted(models=both.models).admits(a_load("me/b", "me/a"))
    assert not Wanted(models=both.models).admits(A)
    assert not Wanted(models=A.models).admits(both)


def test_a_folder_is_served_as_it_was_when_the_machine_started() -> None:
    then, now = a_load("/m", revision="sha256-a"), a_load("/m", revision="sha256-b")

    assert Wanted(models=now.models, any_revision=True).admits(now)
    assert not Wanted(models=now.models, any_revision=True).admits(then)
