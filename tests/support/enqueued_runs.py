"""Enqueue a run over a folder of three small shards."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from celery import Celery

from fleet.ledger import Ledger
from producer.planning.enqueue import Enqueued, enqueue
from producer.planning.options import RunOptions
from producer.planning.plan import plan_run


def write(path: Path, **columns: Any) -> None:
    text = [f"text {row}" for row in range(10)]
    pq.write_table(pa.table({"text": text, "id": text, "length": list(range(10)), **columns}), path)


def do(options: RunOptions, ledger: Ledger, app: Celery) -> Enqueued:
    return enqueue(plan_run(options), ledger, app, resend_seconds=60)


def copied_model(model: Path, folder: Path, **config: Any) -> Path:
    """A copy of a model folder, with changes to its config."""
    copy = shutil.copytree(model, folder / "model")
    known = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(known | config))
    return copy
