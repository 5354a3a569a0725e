"""Runs without faults. Their bytes are what all other runs must produce."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from chaos.fleet import ChaosFleet, FleetPlan
from chaos.invariants import Digests, published_digests
from chaos.place import Place, Variant
from chaos.schedule import Schedule
from fleet.inputs.opening import open_input
from hubserver import HubServer
from support.waiting import wait_until

_SECONDS = 300.0  # limit for each run to be published


def undisturbed(place: Place, plan: FleetPlan, hub: HubServer) -> Digests:
    """The files of each variant. A poisoned variant is published without its poison, so it equals the clean variant."""
    calm = replace(plan, workers=1, machines=0, finalizers=1, seconds_a_batch=0.0)
    schedule = Schedule(0, lease_seconds=calm.lease_seconds, only=())
    digests = {}
    with ChaosFleet.started(place.folder / "undisturbed", calm, place.models, hub, schedule) as fleet:
        outputs = {variant: fleet.folder / "out" / variant.name for variant in place.variants}
        _publish(fleet, outputs)
        for variant, output in outputs.items():
            check_each_row_is_there_once(variant, output)
            digests[variant.name] = published_digests(str(output), "", hub)
    for poisoned in place.poisoned:
        clean = next(variant for variant in place.variants if variant.min_score == poisoned.min_score)
        digests[poisoned.name] = digests[clean.name]
    return digests


def _publish(fleet: ChaosFleet, outputs: Mapping[Variant, Path]) -> None:
    services = [
        fleet.producer(variant, str(output), number) for number, (variant, output) in enumerate(outputs.items())
    ]
    for service in services:
        service.start()
    for service in services:
        assert service.process.wait() == 0, service.log.read_text()
        run_id = service.log.read_text().splitlines()[-1].strip()
        wait_until(partial(fleet.ledger.publication, run_id), description=f"{run_id} is published", seconds=_SECONDS)


def check_each_row_is_there_once(variant: Variant, output: Path) -> None:
    kept_rows = 0
    for shard in sorted(variant.shard_names):
        with open_input(str(next(variant.shards.glob(f"{shard}.*")))) as file:
            rows = pa.Table.from_batches(file.batches(), file.schema)
        scores = pq.read_table(output / "scores" / f"{shard}.parquet")
        assert scores["row"].to_pylist() == list(range(len(rows)))
        kept = rows.filter(pc.greater_equal(scores[variant.score_column], variant.min_score))
        assert pq.read_table(output / "data" / f"{shard}.parquet")["id"].equals(kept["id"])
        kept_rows += len(kept)
    assert 0 < kept_rows < len(rows) * len(variant.shard_names), "a filter that keeps all or nothing shows little"
