"""The storms of one command: the main one, one with poison shards, and one with a real model."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.fleet import FleetPlan
from chaos.kinds import NOTICES, Kind
from chaos.place import Place, Variant, prepare
from chaos.storm import Outcome, StormPlan, storm
from chaos.undisturbed import undisturbed
from hubserver import HubServer
from support.line_files import write_as_lines

_ROWS = 48
_POISON_ATTEMPTS = 3  # so these runs must not have faults that count as crashes of healthy shards
_POISON_SECONDS = 600.0
_NO_CRASHES = (
    Kind.FINALIZER,
    Kind.REDIS,
    Kind.PRODUCER,
    *NOTICES,
    Kind.SUPERVISOR,
    Kind.FREEZE_SUPERVISOR,
    Kind.CUT,
    Kind.PAUSE,
)
_REAL_PAUSE_SECONDS = 8.0  # a window takes some tenths of a second, the first one of a process longer
_REAL_SECONDS, _REAL_SHARDS, _REAL_ROWS = 600.0, 6, 8
_LABELS = ("--labels", "climate change,food,code")
_PASSAGES = ("--max-tokens", "24", "--passages", "stride:16:mean")
_OF_REAL_WORKERS = (
    Kind.CHILD,
    Kind.PARENT,
    *NOTICES,
)  # a start takes about ten seconds, so only a few faults are possible


@dataclass(frozen=True, kw_only=True)
class CampaignPlan:
    seed: int
    seconds: float
    workers: int = 3
    kinds: Collection[Kind] = tuple(Kind)
    min_faults: int = 0
    poison_runs: int = 1
    real_model: bool = False
    shards: int = 12  # of each run


def campaign(plan: CampaignPlan, folder: Path, say: Callable[[str], None]) -> list[Outcome]:
    """Run the storms one after another, and compare each with runs without faults."""
    place = prepare(folder, shards=plan.shards, rows=_ROWS, seed=plan.seed)
    with HubServer(xet=False) as hub:
        say("Runs without faults")
        digests = undisturbed(place, FleetPlan(), hub)
        outcomes = [storm(one, place, hub, digests, say) for one in _storms(plan, place)]
        if plan.real_model:
            outcomes.append(_real_storm(plan, folder / "real", hub, say))
    return outcomes


def _storms(plan: CampaignPlan, place: Place) -> Iterator[StormPlan]:
    fleet = FleetPlan(workers=plan.workers)
    yield StormPlan(
        name="storm",
        seed=plan.seed,
        seconds=plan.seconds,
        fleet=fleet,
        variants=place.variants,
        kinds=plan.kinds,
        min_faults=plan.min_faults,
    )
    if plan.poison_runs:
        yield StormPlan(
            name="poison",
            seed=plan.seed,
            seconds=_POISON_SECONDS,
            fleet=replace(fleet, max_attempts=_POISON_ATTEMPTS, lease_seconds=2 * fleet.lease_seconds),
            variants=place.poisoned,
            kinds=[kind for kind in plan.kinds if kind in _NO_CRASHES],
            runs=plan.poison_runs,
            on_hub=False,
        )


def _real_storm(plan: CampaignPlan, folder: Path, hub: HubServer, say: Callable[[str], None]) -> Outcome:
    """A storm with real models in float32, whose bytes must also equal those of a run without faults.

    Each worker holds two: MiniLM, and a small model of natural language inference. One run chooses from labels, and one reads
    passages of JSON Lines.
    """
    from support.models import minilm_classifier  # here, because they import torch, which no other storm needs
    from support.nli import nli_classifier

    few = prepare(folder, shards=_REAL_SHARDS, rows=_REAL_ROWS, seed=plan.seed)
    models = {"nli": nli_classifier(few.folder / "nli", "BERT"), "edu": minilm_classifier(few.folder / "minilm")}
    shards = few.variants[0].shards
    labels = Variant(name="labels", shards=shards, score_column="edu_score", min_score=3.0, options=_LABELS)
    lines = write_as_lines(shards, few.folder / "lines", ".jsonl.zst")
    variants = (labels, replace(labels, name="passages", shards=lines, options=_PASSAGES))
    real = replace(few, models=models, variants=variants, poisoned=())
    fleet = FleetPlan(workers=2, machines=0, finalizers=1, lease_seconds=5.0, window_rows=2, stand_in=False)
    say("A run of the real model without faults")
    digests = undisturbed(real, fleet, hub)
    kinds = [kind for kind in plan.kinds if kind in _OF_REAL_WORKERS]
    storm_plan = StormPlan(
        name="real-model",
        seed=plan.seed,
        seconds=_REAL_SECONDS,
        runs=len(real.variants),
        worker_pause_seconds=_REAL_PAUSE_SECONDS,
        fleet=fleet,
        variants=real.variants,
        kinds=kinds,
        on_hub=False,
    )
    return storm(storm_plan, real, hub, digests, say)
