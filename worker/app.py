"""The worker's Celery app: one spawned child, one task at a time, and the queue of one scorer.

`worker start` runs it, and so does plain `celery -A shardsift.worker.app worker`. The parent imports this module, so it
must not import torch.
"""

from shardsift.fleet.process.broker import make_app
from shardsift.fleet.process.settings import read_settings
from shardsift.worker.service.program import ScorerWorker, TakeShardsWhenLoaded, log_line

_MODEL_LOAD_SECONDS = 1800  # Celery's default of 4 s would kill every new child while it loads

app = make_app(
    "worker",
    read_settings(),
    worker_log_format=log_line(),
    worker_task_log_format=log_line(),
    include=["shardsift.worker.service.task"],
    worker_consumer="shardsift.worker.service.program:ScorerConsumer",
    worker_pool="prefork",
    worker_concurrency=1,
    worker_pool_start_method="spawn",  # a forked child cannot use CUDA if the parent has used it
    worker_proc_alive_timeout=_MODEL_LOAD_SECONDS,
    worker_lost_wait=1,  # seconds to wait for the last message of a dead child
)
app.Worker = app.subclass_with_self(ScorerWorker)
app.steps["consumer"].add(TakeShardsWhenLoaded)
