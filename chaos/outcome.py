"""The plan of a storm, and its record."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from chaos.events import Event
from chaos.faults import Broken, Fault, Kind
from chaos.fleet import FleetPlan
from chaos.place import Variant
from chaos.runs import Run


@dataclass(frozen=True, kw_only=True)
class StormPlan:
    """A storm ends after `seconds`, after `runs`, or when each kind of kill has happened `min_faults` times.

    If `runs` or `min_faults` is 0, it does not end the storm.
    """

    name: str
    seed: int
    seconds: float
    fleet: FleetPlan
    variants: tuple[Variant, ...]
    kinds: Collection[Kind] = tuple(Kind)
    min_faults: int = 0
    runs: int = 0
    runs_at_once: int = 2
    on_hub: bool = True


@dataclass(kw_only=True)
class Outcome:
    plan: StormPlan
    seconds: float = 0.0
    faults: list[Fault] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    problems: list[Broken] = field(default_factory=list)
    unasked_ends: Counter[str] = field(default_factory=Counter)
    left: dict[str, int] = field(default_factory=dict)
    work_log: Path = Path()
