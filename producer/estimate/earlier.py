"""How fast an earlier run of the same models was, from the receipts in the ledger."""

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import redis

from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.receipt import Provenance
from fleet.settings import Settings
from fleet.spec import RunSpec

_MOST_RUNS = 50  # that are asked for, newest first
_MOST_RECEIPTS = 200  # of the run that is found


@dataclass(frozen=True, kw_only=True)
class EarlierSpeed:
    """Tokens per second of a worker while it had one of these shards, with what it waited for."""

    run_id: str
    device: str
    tokens_per_second: float
    shards: int


@contextmanager
def ledger_if_it_answers(settings: Settings) -> Iterator[Ledger | None]:
    """The fleet's ledger, to read. None if no Redis is named, or it does not answer."""
    try:
        ledger = Ledger.connect(settings) if settings.redis_url else None
    except UsageError:
        ledger = None
    try:
        yield ledger
    finally:
        if ledger:
            ledger.redis.close()


def speeds_of_an_earlier_run(spec: RunSpec, ledger: Ledger) -> list[EarlierSpeed]:
    """Of the newest run that the same workers serve and that has done shards: one for each kind of device. Empty if none has."""
    try:
        for run_id in ledger.run_ids()[:_MOST_RUNS]:
            if _has_the_models_of(spec, ledger, run_id) and (speeds := _speeds(ledger, run_id)):
                return speeds
    except (redis.RedisError, UsageError):  # a run was deleted meanwhile
        pass
    return []


def _has_the_models_of(spec: RunSpec, ledger: Ledger, run_id: str) -> bool:
    known = ledger.readable_spec(run_id)
    return known is not None and known.queue == spec.queue


def _speeds(ledger: Ledger, run_id: str) -> list[EarlierSpeed]:
    by_device: defaultdict[str, list[Provenance]] = defaultdict(list)
    for receipt in ledger.some_receipts(run_id, _MOST_RECEIPTS):
        made = receipt.provenance
        if made.tokens and any(made.seconds.values()):
            by_device[made.device].append(made)
    return [
        EarlierSpeed(
            run_id=run_id,
            device=device,
            tokens_per_second=sum(one.tokens for one in made) / math.fsum(_seconds(one) for one in made),
            shards=len(made),
        )
        for device, made in by_device.items()
    ]


def _seconds(made: Provenance) -> float:
    return math.fsum(made.seconds.values())
