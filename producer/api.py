"""Runs from Python: `shardsift.run`, `enqueue`, `status` and `verify`, which the commands of the same names do too."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import redis
from kombu.exceptions import OperationalError

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.broker import make_app
from shardsift.fleet.process.command_line import keywords_told, options_from, with_help_of
from shardsift.fleet.process.redis_away import as_ours
from shardsift.fleet.process.settings import read_settings
from shardsift.fleet.run.options import split_at_commas
from shardsift.producer.local.run import run_locally
from shardsift.producer.opening import open_ledger_of, output_of
from shardsift.producer.planning.enqueue import Enqueued
from shardsift.producer.planning.enqueue import enqueue as enqueue_plan
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.plan import plan_run
from shardsift.producer.planning.steering import SteeringOptions
from shardsift.producer.publishing.publish import looked_at
from shardsift.producer.status import RunStatus, run_status
from shardsift.producer.status.watch import watch
from shardsift.producer.verify.report import Verification
from shardsift.producer.verify.verify import verify as verify_output

Place = str | PathLike[str]  # a path or a URI


@with_help_of(RunOptions)
def run(
    options: RunOptions | None = None,
    *,
    workers: int | None = None,
    verify: bool = False,
    progress: bool = True,
    redis_url: str | None = None,
    **keywords: Any,
) -> RunStatus:
    """Do a whole run on this machine: read Parquet, score each row, keep some, publish. Returns how it ended.

    >>> shardsift.run(input="./shards/*.parquet", output="./kept", min_score=3)
    <RunStatus published: 8 of 8 shards done, 96 rows in, 41 kept; shards.fineweb-edu-classifier.3f2a91c04dd1>

    Starts Redis, one worker per GPU and a finalizer, and stops them at the end. Interrupting it stops the run cleanly, and
    the same call resumes it. A call for a finished run scores nothing: it checks the output and repairs it.

    workers: worker processes. Default: one per GPU, or one on the CPU.
    verify: read all published files and compare their sha256, not only their sizes.
    progress: show progress on stderr.
    redis_url: a Redis to use instead of one of its own. Default: the environment's REDIS_URL.

    Raises UsageError for wrong options, before anything is started, and if no worker can score. Shards that fail do not
    raise: see `failures` and `word` of the returned status.
    """
    with _errors_told():
        if workers is not None and workers < 1:
            raise UsageError(f"workers={workers!r} is wrong: the least is 1.")
        settings = read_settings(redis_url=redis_url)
        plan = plan_run(options_from(options, RunOptions, keywords, labels=split_at_commas))
        return run_locally(plan, settings, workers=workers, verify=verify, progress=progress)


@with_help_of(RunOptions)
def enqueue(
    options: RunOptions | None = None,
    *,
    max_workers: int | None = None,
    max_cost: float | None = None,
    allow_mixed: bool | None = None,
    verify: bool = False,
    redis_url: str | None = None,
    **keywords: Any,
) -> Enqueued:
    """Send a run to a fleet: one task per shard. Returns at once; calling it twice adds nothing.

    >>> sent = shardsift.enqueue(crawl="CC-MAIN-2024-10", redis_url="redis://10.0.0.5:6379/0")
    >>> shardsift.status(sent.run_id, wait=True, redis_url="redis://10.0.0.5:6379/0")

    max_workers: how many workers may score shards of the run at once; 0 for any number. Default: as it was, at first any.
    max_cost: pause the run when its work has cost this much at SHARDSIFT_PRICE_PER_GPU_HOUR; 0 for no limit.
    allow_mixed: let workers score in different number formats. Default: as it was, at first only in that of the first worker.
    verify: if the run is published already, read its files and compare their sha256, not only their sizes.
    redis_url: the fleet's Redis. Default: the environment's REDIS_URL.

    Raises UsageError for wrong options and if no Redis answers, TransientError if it stops answering.
    """
    with _errors_told():
        settings = read_settings(redis_url=redis_url)
        price = settings.price_per_gpu_hour
        steering = SteeringOptions(
            max_workers=max_workers, max_cost=max_cost, price_per_gpu_hour=price, allow_mixed=allow_mixed
        )
        found = options_from(options, RunOptions, keywords, labels=split_at_commas)
        if found.needs_all_scores:
            raise UsageError(
                "keep_top and buckets choose rows when all have a score: call run() instead of enqueue(). Or publish scores "
                "alone with where='false', and choose with `producer refilter` when you like."
            )
        ledger = Ledger.connect(settings)
        with closing(ledger.redis), make_app("producer", settings, is_current=False) as app:
            plan = plan_run(found)  # after Redis has answered, since planning may take long
            return enqueue_plan(plan, ledger, app, settings, verify=verify, steering=steering)


def status(
    run_id: str | None = None,
    *,
    wait: bool = False,
    verify: bool = False,
    progress: bool = True,
    redis_url: str | None = None,
) -> RunStatus:
    """The state of a run: of the newest one if no id is given. Checks the output if the run is published.

    >>> print(shardsift.status())
    on track, 3 h 20 min to 4 h 5 min left
    <BLANKLINE>
    run      cc-main-2024-10.fineweb-edu-classifier.3f2a91c04dd1
    progress █▒▒░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  4% of shards done
    shards   12 of 250 done, 8 running, 230 queued, 0 failed

    Its `word` is the state, its `counts` the shards and rows, and `is_over` tells whether nothing more will happen by itself.

    wait: block until the run is over, with progress on stderr unless `progress` is False. Waits for a Redis that goes away.
    verify: read all published files of a run and compare their sha256, not only their sizes.
    redis_url: the fleet's Redis. Default: the environment's REDIS_URL, otherwise the Redis of this machine's own runs.

    Raises UsageError for an unknown run and if no Redis answers, TransientError if it stops answering.
    """
    with _errors_told(), open_ledger_of(run_id, read_settings(redis_url=redis_url)) as (settings, ledger, run):
        is_local = settings.redis_is_embedded
        if wait:
            watch(ledger, run, is_of_this_machine=is_local, outlasts_redis=not is_local, progress=progress)
        found = run_status(ledger, run, is_of_this_machine=is_local)
        return looked_at(ledger, found, hashes=verify)


def verify(target: Place, *, input: Place | Sequence[Place] = (), redis_url: str | None = None) -> Verification:
    """Check a published dataset: hashes, counts, schemas and scores; no duplicate rows, missing shards or foreign files.

    >>> shardsift.verify("./kept", input="./shards/*.parquet")
    <Verification sound: 8 shards, 16 files, 96 rows in, 41 kept; ./kept>

    Reads the whole output. Its `is_sound` is the verdict, and its `faults` say what is wrong with which file.

    target: the folder, bucket or hf:// dataset of an output, or the id of a run. Only a run's id needs Redis.
    input: also compare every row with this input.
    redis_url: as for `status`.

    Raises UsageError if shardsift has published nothing there, TransientError if the network fails.
    """
    inputs = [input] if isinstance(input, (str, PathLike)) else input
    with _errors_told():
        uri, published_run = output_of(_text(target), read_settings(redis_url=redis_url))
        return verify_output(uri, source=tuple(map(_text, inputs)), published_run=published_run)


def _text(place: Place) -> str:
    """A path as an absolute one: "kept" may be the id of a run, and Path("kept") is none."""
    return place if isinstance(place, str) else str(Path(place).absolute())


@contextmanager
def _errors_told() -> Iterator[None]:
    """Errors in the words of a Python user. An error of Redis is one of ours."""
    try:
        with keywords_told():
            yield
    except (redis.RedisError, OperationalError) as error:
        raise as_ours(error) from error
