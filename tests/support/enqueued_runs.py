"""Enqueue a run over a folder of three small shards."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from celery import Celery

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.run.spec import Shard
from shardsift.fleet.storage.open_output import open_output
from shardsift.producer.planning.enqueue import Enqueued, enqueue
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.plan import Plan, plan_run
from support.records import stage_shard


@dataclass(frozen=True, kw_only=True)
class Command:
    """`producer enqueue` with some options. A test may change options for a single call."""

    options: RunOptions
    ledger: Ledger
    app: Celery

    @property
    def source(self) -> Path:
        return Path(self.options.input_uris[0])

    @property
    def out(self) -> Path:
        return Path(self.options.output_uri)

    def plan(self, **changes: Any) -> Plan:
        return plan_run(replace(self.options, **changes))

    def do(self, **changes: Any) -> Enqueued:
        return enqueue(self.plan(**changes), self.ledger, self.app, Settings())

    def stage(self, run_id: str, shard: Shard) -> Receipt:
        """Store the files and the receipt of a shard as a worker does. The ledger is not told."""
        return stage_shard(open_output(str(self.out), run_id), run_id, shard, self.out.parent)


def write(path: Path, **columns: Any) -> None:
    text = [f"text {row}" for row in range(10)]
    pq.write_table(pa.table({"text": text, "id": text, "length": list(range(10)), **columns}), path)
