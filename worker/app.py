"""The worker's Celery app: one spawned child, one shard at a time, and the queue of one scorer.

`worker start` runs it; so does plain `celery -A worker.app worker`. Imported by parent and child alike, so it must
not import torch.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from celery import signals
from kombu.entity import Queue

from fleet.broker import make_app
from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.model import resolve_model
from fleet.settings import read_settings
from fleet.spec import scorer_queue
from worker.child_signal import FOLDER

_MODEL_LOAD_SECONDS = 1800  # Celery's default of 4 s would kill each replaced child while it loads, for ever

app = make_app(
    "worker",
    read_settings(),
    include=["worker.task"],
    worker_pool="prefork",
    worker_concurrency=1,
    worker_pool_start_method="spawn",  # a forked child cannot use CUDA if anything touched it before
    worker_proc_alive_timeout=_MODEL_LOAD_SECONDS,
    worker_lost_wait=1,  # the seconds in which a dead child's last word may still come
)


@signals.celeryd_init.connect
def _serve_one_scorer(sender: str, conf: Any, **_: Any) -> None:
    """Pin the model's revision for the child, and consume that scorer's queue only."""
    try:
        settings = read_settings()
        app.ledger = Ledger.connect(settings)
        model = resolve_model(settings.model, settings.model_revision)
    except UsageError as error:
        sys.stderr.write(f"worker: {error}\n")
        raise SystemExit(2) from error
    if settings.model != model.name:
        os.environ["SHARDSIFT_MODEL"] = model.name
    elif not model.revision.startswith("sha256-"):
        os.environ["SHARDSIFT_MODEL_REVISION"] = model.revision
    queue = scorer_queue(model, settings.dtype)
    conf.task_queues = [Queue(queue, routing_key=queue)]
    conf.task_default_queue = queue


@signals.worker_process_init.connect
def _start_child(**_: Any) -> None:
    from worker.child import start_child

    app.child = start_child()


@signals.worker_ready.connect
def _watch_over_child(sender: Any, **_: Any) -> None:
    """From here on the parent reports crashes of its child, and ends it in good order when told to leave."""
    from worker.parent import Parent

    app.parent = Parent(app, sender, read_settings(), app.ledger)
    app.parent.watch_for_spot_notice()


@signals.task_failure.connect
def _report_crash(exception: BaseException | None = None, kwargs: Any = None, **_: Any) -> None:
    if parent := getattr(app, "parent", None):  # a child has none
        parent.report_crash(exception, kwargs or {})


@signals.task_unknown.connect
@signals.task_rejected.connect
def _count_refused(**_: Any) -> None:
    """What Celery itself refuses: another's task, or no task at all."""
    if parent := getattr(app, "parent", None):
        parent.count_refused()


@signals.worker_shutting_down.connect
def _stop_child(**_: Any) -> None:
    if parent := getattr(app, "parent", None):
        parent.stop_child()


@signals.celeryd_init.connect
def _make_folder(**_: Any) -> None:
    """Where children leave word of why they died; `worker start` has made one already."""
    if FOLDER not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="shardsift-worker-")
        app.folder = folder
        os.environ[FOLDER] = str(Path(folder.name))
