"""The storms of one command: the main one, and one with poison shards. Both must give the bytes of runs without faults."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from chaos.faults import NOTICES, Kind, Schedule
from chaos.fleet import ChaosFleet, FleetPlan
from chaos.invariants import Digests, published_digests
from chaos.outcome import Outcome, StormPlan
from chaos.place import UNDISTURBED, Place, Variant, check_each_row_is_there_once, prepare, put_base
from chaos.storm import storm
from hubserver import HubServer
from support.waiting import wait_until

_ROWS = 48
_UNDISTURBED_SECONDS = 300.0  # limit for each run without faults
_POISON_ATTEMPTS = 3  # few, so these runs have no faults that count as crashes of healthy shards
_POISON_SECONDS = 600.0
_NO_CRASHES = (*NOTICES, Kind.FINALIZER, Kind.REDIS, Kind.PRODUCER, Kind.SUPERVISOR, Kind.FREEZE_SUPERVISOR, Kind.CUT)


@dataclass(frozen=True, kw_only=True)
class CampaignPlan:
    seed: int
    seconds: float
    workers: int = 3
    kinds: Collection[Kind] = tuple(Kind)
    min_faults: int = 0
    poison_runs: int = 1
    shards: int = 12  # of each run
    xet: bool = False  # the Hub takes files by xet instead of LFS


def campaign(plan: CampaignPlan, folder: Path, say: Callable[[str], None]) -> list[Outcome]:
    place = prepare(folder, shards=plan.shards, rows=_ROWS, seed=plan.seed)
    with HubServer(xet=plan.xet) as hub:
        say("Runs without faults")
        digests = _undisturbed(place, hub)
        return [storm(one, place, hub, digests, say) for one in _storms(plan, place)]


def _undisturbed(place: Place, hub: HubServer) -> Digests:
    """Do a run of each variant, part and extension without faults. Returns the digests of their files.

    A poisoned variant is published without its poison, so it equals the clean variant.
    """
    calm = FleetPlan(workers=1, machines=0, finalizers=1, seconds_a_batch=0.0)
    schedule = Schedule(0, lease_seconds=calm.lease_seconds, only=())
    digests: Digests = {}
    with ChaosFleet.started(place.folder / UNDISTURBED, calm, place.model, hub, schedule) as fleet:
        for variants in ((*place.variants, *place.parts), place.extensions):  # each group at once
            digests |= _published(variants, fleet, hub)
    for variant, part, extension in zip(place.variants, place.parts, place.extensions, strict=True):
        assert digests[part.name].items() <= digests[extension.name].items()
        assert variant.target_file_size != "none" or digests[extension.name] == digests[variant.name]
    clean = next(variant for variant in place.variants if variant.min_score == place.poisoned.min_score)
    return digests | {place.poisoned.name: digests[clean.name]}


def _published(variants: Sequence[Variant], fleet: ChaosFleet, hub: HubServer) -> Digests:
    outputs = {variant: fleet.folder / "out" / variant.name for variant in variants}
    services, digests = {}, {}
    for variant, output in outputs.items():
        put_base(variant, output)
        services[variant] = fleet.producer(variant, str(output), variant.name)
        services[variant].start()
    for variant, output in outputs.items():
        service = services[variant]
        assert service.process.wait() == 0, service.log.read_text()
        run_id = service.log.read_text().splitlines()[-1].strip()
        is_published = partial(_is_published, fleet, run_id)
        wait_until(is_published, description=f"{run_id} is published", seconds=_UNDISTURBED_SECONDS)
        check_each_row_is_there_once(variant, output)
        digests[variant.name] = published_digests(str(output), "", hub)
    return digests


def _is_published(fleet: ChaosFleet, run_id: str) -> bool:
    return fleet.ledger.state(run_id).publication is not None


def _storms(plan: CampaignPlan, place: Place) -> Iterator[StormPlan]:
    fleet = FleetPlan(workers=plan.workers)
    yield StormPlan(
        name="storm",
        seed=plan.seed,
        seconds=plan.seconds,
        fleet=fleet,
        variants=tuple((place.variants, place.extensions)[number % 2][number % 3] for number in range(6)),
        kinds=plan.kinds,
        min_faults=plan.min_faults,
    )
    if plan.poison_runs:
        yield StormPlan(
            name="poison",
            seed=plan.seed,
            seconds=_POISON_SECONDS,
            fleet=replace(fleet, max_attempts=_POISON_ATTEMPTS, lease_seconds=2 * fleet.lease_seconds),
            variants=(place.poisoned,),
            kinds=[kind for kind in plan.kinds if kind in _NO_CRASHES],
            runs=plan.poison_runs,
            on_hub=False,
        )
