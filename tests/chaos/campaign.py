"""The storms of one call: the main one, one with poison shards, one with a real model."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.faults import Kind
from chaos.fleet import FleetPlan
from chaos.place import prepare
from chaos.storm import Outcome, StormPlan, storm
from chaos.undisturbed import undisturbed
from hubserver import HubServer

_SHARDS, _ROWS = 12, 48
_POISON_ATTEMPTS = 3  # so that these runs must not have faults that count as crashes of healthy shards
_POISON_SECONDS = 600.0
_NO_CRASHES = (Kind.FINALIZER, Kind.REDIS, Kind.PRODUCER, Kind.NOTICE_PARENT, Kind.NOTICE_GROUP, Kind.CUT)


@dataclass(frozen=True, kw_only=True)
class CampaignPlan:
    seed: int
    seconds: float
    workers: int = 4
    kinds: Collection[Kind] = tuple(Kind)
    min_faults: int = 0
    poison_runs: int = 1
    real_model: bool = False


def campaign(plan: CampaignPlan, folder: Path, say: Callable[[str], None]) -> list[Outcome]:
    """Ends with the first storm that broke a promise."""
    folder.mkdir(parents=True, exist_ok=True)
    fleet = FleetPlan(workers=plan.workers)
    with HubServer(xet=False) as hub:
        say("What runs without faults give")
        place = prepare(folder, shards=_SHARDS, rows=_ROWS, seed=plan.seed)
        digests = undisturbed(place, fleet, hub)
        storms = [
            StormPlan(
                name="storm",
                seed=plan.seed,
                seconds=plan.seconds,
                fleet=fleet,
                variants=place.variants,
                kinds=plan.kinds,
                min_faults=plan.min_faults,
            )
        ]
        if plan.poison_runs:
            storms.append(
                StormPlan(
                    name="poison",
                    seed=plan.seed,
                    seconds=_POISON_SECONDS,
                    fleet=replace(fleet, max_attempts=_POISON_ATTEMPTS, lease_seconds=2 * fleet.lease_seconds),
                    variants=place.poisoned,
                    kinds=[kind for kind in plan.kinds if kind in _NO_CRASHES],
                    runs=plan.poison_runs,
                    on_hub=False,
                )
            )
        outcomes: list[Outcome] = []
        for one in storms:
            outcomes.append(storm(one, place, hub, digests, say))
            if outcomes[-1].problems:
                break
    return outcomes
