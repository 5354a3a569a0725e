"""The Python API for runs: each function does what the command of the same name does."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Unpack

import pyarrow as pa
import redis

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.broker import make_app
from shardsift.fleet.process.keywords import (
    Location,
    Names,
    check_number,
    keyword_errors,
    options_from,
    text_of_place,
    texts_of_places,
    with_help_of,
)
from shardsift.fleet.process.redis_away import as_ours
from shardsift.fleet.process.settings import Settings, read_settings
from shardsift.fleet.process.wording import is_place
from shardsift.fleet.run.options import split_at_commas
from shardsift.producer.evidence.evaluate import evaluate_run, labels_from
from shardsift.producer.evidence.evaluation import Evaluation, Question
from shardsift.producer.evidence.rows_to_label import rows_to_label
from shardsift.producer.evidence.sheet import ArrowTable, read_labels
from shardsift.producer.local.run import run_locally
from shardsift.producer.opening import open_ledger_of, output_of, published_output_of
from shardsift.producer.planning.enqueue import Enqueued
from shardsift.producer.planning.enqueue import enqueue as enqueue_plan
from shardsift.producer.planning.options import RefilterKeywords, RefilterOptions, RunKeywords, RunOptions
from shardsift.producer.planning.plan import plan_run
from shardsift.producer.planning.refilter import plan_refilter
from shardsift.producer.planning.retry import retry_run
from shardsift.producer.planning.steering import resume_run, send_shards
from shardsift.producer.publishing.publish import with_findings
from shardsift.producer.scores.scored_run import ScoredRun, scored_run
from shardsift.producer.status import RunStatus, run_status
from shardsift.producer.status.watch import watch
from shardsift.producer.transient_errors import with_retries
from shardsift.producer.verify.verification import Verification
from shardsift.producer.verify.verify import verify as verify_output


@with_help_of(RunOptions)
def run(
    *,
    workers: int | None = None,
    verify: bool = False,
    score_again: bool = False,
    progress: bool = True,
    redis_url: str | None = None,
    **keywords: Unpack[RunKeywords],
) -> RunStatus:
    """Do a whole run on this machine: read Parquet, score each row, keep some, publish. Returns how it ended.

    >>> shardsift.run(input="./shards/*.parquet", output="./kept", min_score=3)
    <RunStatus published: 8 of 8 shards done, 96 rows in, 41 kept; shards.fineweb-edu-classifier.3f2a91c04dd1>

    Starts Redis, one worker per GPU and a finalizer, and stops them at the end. Interrupting it stops the run cleanly, and
    the same call resumes it. A call for a finished run scores nothing: it checks the output and repairs it.

    workers: worker processes. Default: one per GPU, or one on the CPU.
    verify: read all published files and compare their sha256, not only their sizes.
    score_again: score the rows even if another run has scored them for another filter. Otherwise that is an error.
    progress: show progress on stderr.
    redis_url: the Redis to use. Default: the environment's REDIS_URL, otherwise this machine's own Redis, started if needed.

    Raises UsageError for wrong options, before anything is started, and if no worker can score; NothingToAdd if `extend` finds
    no new file. Shards that fail do not raise: see `failures` and `word` of the returned status.
    """
    with _errors():
        _check_workers(workers)
        settings = read_settings(redis_url=redis_url)
        plan = plan_run(options_from(RunOptions, keywords, labels=split_at_commas))
        return run_locally(plan, settings, workers=workers, verify=verify, score_again=score_again, progress=progress)


@with_help_of(RunOptions)
def enqueue(
    *,
    verify: bool = False,
    score_again: bool = False,
    redis_url: str | None = None,
    **keywords: Unpack[RunKeywords],
) -> Enqueued:
    """Send a run to a fleet: one task per shard. Returns at once; calling it twice adds nothing.

    >>> sent = shardsift.enqueue(crawl="CC-MAIN-2024-10", redis_url="redis://10.0.0.5:6379/0")
    >>> shardsift.status(sent.run_id, wait=True, redis_url="redis://10.0.0.5:6379/0")

    verify: if the run is published already, read its files and compare their sha256, not only their sizes.
    score_again: as for `run`.
    redis_url: the fleet's Redis. Default: the environment's REDIS_URL.

    Raises UsageError for wrong options and if no Redis answers, TransientError if it stops answering, NothingToAdd like `run`.
    """
    with _errors():
        settings = read_settings(redis_url=redis_url)
        options = options_from(RunOptions, keywords, labels=split_at_commas)
        ledger = Ledger.connect(settings)
        with closing(ledger.redis), make_app("producer", settings, is_current=False) as app:
            plan = plan_run(options)  # after Redis has answered, since planning may take long
            return enqueue_plan(plan, ledger, app, settings, verify=verify, score_again=score_again)


@with_help_of(RefilterOptions)
def refilter(
    target: Location,
    *,
    workers: int | None = None,
    verify: bool = False,
    progress: bool = True,
    redis_url: str | None = None,
    **keywords: Unpack[RefilterKeywords],
) -> RunStatus:
    """Re-filter a published run from its stored scores, on this machine. Returns how it ended.

    >>> shardsift.refilter("./kept", min_score=2.5, output="./kept-2.5", input="./shards/*.parquet")

    Files have the target size of the published run, unless you name another. The same call resumes an interrupted one.

    target: the folder, bucket or hf:// dataset of an output, or the id of a run.
    workers: worker processes. Default: one per CPU core.
    verify, progress, redis_url: as for `run`.

    Raises UsageError if nothing is published there, if the input is not the one that was scored, or if the filter does not
    fit its columns or the scores.
    """
    with _errors():
        _check_workers(workers)
        settings, name = read_settings(redis_url=redis_url), text_of_place(target)
        uri, input_uris = (name, ()) if is_place(name) else published_output_of(name, settings)
        plan = plan_refilter(uri, options_from(RefilterOptions, keywords), input_uris=input_uris)
        return run_locally(plan, settings, workers=workers, verify=verify, progress=progress)


def status(
    run_id: str | None = None,
    *,
    wait: bool = False,
    progress: bool = True,
    redis_url: str | None = None,
) -> RunStatus:
    """Return the state of a run. Without an id, take the newest run that is under way, or else the newest run.

    Checks the output if the run is published.

    >>> print(shardsift.status())
    on track, 3 h 20 min to 4 h 5 min left
    <BLANKLINE>
    run      cc-main-2024-10.fineweb-edu-classifier.3f2a91c04dd1
    progress █▒▒░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  4% of shards done
    shards   12 of 250 done, 8 running, 230 queued, 0 failed

    `word` is the state, `counts` has the shards and rows, and `is_over` is true if nothing more will happen by itself.

    wait: block until the run is over, also while Redis is down. Progress is on stderr unless `progress` is False.
    redis_url: the fleet's Redis. Default: the environment's REDIS_URL, otherwise the Redis of this machine's own runs.

    Raises UsageError for an unknown run and if no Redis answers, TransientError if it stops answering.
    """
    with _errors(), open_ledger_of(run_id, read_settings(redis_url=redis_url)) as (_, ledger, run):
        if wait:
            watch(ledger, run, progress=progress)
        return with_findings(ledger, run_status(ledger, run), hashes=False)


def scores(target: Location, *, redis_url: str | None = None) -> ScoredRun:
    """Read the scores of a published or unfinished run: their distribution, and the rows near a threshold.

    >>> found = shardsift.scores("./kept")
    >>> print(found)  # the rows that each threshold would keep
    >>> found.near(2.5, input="./shards/*.parquet")  # the rows nearest to a score, with their texts
    >>> found.edges(20, by="token_count", input="./shards/*.parquet")  # between 20 parts of equal weight

    target: the folder, bucket or hf:// dataset of an output, or the id of a run. Only a run's id needs Redis.
    redis_url: as for `status`.

    Raises UsageError if there is no such run, or if none of its shards is done.
    """
    with _errors():
        return scored_run(text_of_place(target), read_settings(redis_url=redis_url))


def sample(
    target: Location,
    rows: int = 400,
    *,
    at: float | None = None,
    within: str | None = None,
    columns: Names = (),
    more: Location | ArrowTable | None = None,
    positive: str | None = None,
    seed: int = 0,
    score_column: str | None = None,
    input: Location | Sequence[Location] = (),
    redis_url: str | None = None,
) -> pa.Table:
    """Draw rows to label from all shards. Returns an Arrow table with their texts and an empty column `label`.

    >>> sheet = shardsift.sample("./kept", rows=200, input="./shards/*.parquet").to_pandas()
    >>> sheet["label"] = sheet["text"].map(is_good)
    >>> print(shardsift.evaluate("./kept", sheet))

    target, redis_url: as for `scores`.
    at: the threshold to judge. Default: that of the filter.
    within: draw rows of each value of this column.
    columns: further columns of the input.
    more: rows that were drawn before, and their labels. The table starts with them, and new rows are drawn where they help most.
    positive: the condition for good labels in `more`, as for `evaluate`.
    seed: another seed draws other rows.
    input: the input, if only the output is known.

    Raises UsageError if the input is not known, or if no row can be drawn.
    """
    with _errors():
        check_number("rows", rows, least=1, whole=True)
        return rows_to_label(
            scored_run(text_of_place(target), read_settings(redis_url=redis_url)),
            rows=rows,
            at=at,
            score_column=score_column,
            within=within,
            columns=split_at_commas([columns]) if isinstance(columns, str) else columns,
            seed=seed,
            more=None if more is None else read_labels(more),
            positive=positive,
            source=texts_of_places(input),
        ).table


def evaluate(
    target: Location,
    labels: Location | ArrowTable,
    *,
    at: float | Sequence[float] = (),
    positive: str | None = None,
    within: str | None = None,
    judge: str | None = None,
    unweighted: bool = False,
    disagreeing: int = 0,
    score_column: str | None = None,
    input: Location | Sequence[Location] = (),
    redis_url: str | None = None,
) -> Evaluation:
    """Measure precision and recall of each threshold by labelled rows, with 95 % intervals, over all rows of the run.

    >>> shardsift.evaluate("./kept", "labels.csv")
    <Evaluation ./kept: precision 81.2% (74.0% to 87.1%), recall 64.8% (41.9% to 88.0%) at 3; 400 labels>
    >>> print(shardsift.evaluate("./kept", "./kept-by-another-model", disagreeing=10))

    labels: the labelled rows of `sample`: a DataFrame, another table, or a file. Or another run of the same input, by place
        or id: its scores are the labels, all shares are exact, and `agreement` has the rank correlation.
    at: more thresholds to measure. The filter's and those of `scores` are always measured. The threshold to judge is the
        first one named here, by default the filter's.
    positive: the condition for good labels, like "label >= 3". Default: "label = 1" if all labels are 0 or 1, otherwise
        numbers at or above the threshold.
    within: also measure the rows of each value of this column.
    judge: the model that gave the labels, if a model did. The result then says that it measures agreement with this model.
    unweighted: assume that each row had the same chance to be drawn. Then `labels` needs no columns `stratum` and `weight`.
    disagreeing: the number of rows in the result's `disagreeing`: the rows on which the two runs disagree most.
    target, redis_url: as for `scores`. input: as for `sample`.

    Raises UsageError if the labelled rows were not drawn from this run, or if two runs have no row in common.
    """
    with _errors():
        check_number("disagreeing", disagreeing, least=0, whole=True)
        settings = read_settings(redis_url=redis_url)
        thresholds = (at,) if isinstance(at, (int, float)) else tuple(at)
        return evaluate_run(
            scored_run(text_of_place(target), settings),
            labels_from(labels, settings, is_weighted=not unweighted),
            Question(at=thresholds, positive=positive, judge=judge, disagreeing=disagreeing),
            score_column=score_column,
            within=within,
            source=texts_of_places(input),
        )


def verify(
    target: Location,
    *,
    input: Location | Sequence[Location] = (),
    drop_list: Location | Sequence[Location] = (),
    redis_url: str | None = None,
) -> Verification:
    """Check a published dataset: hashes, counts, schemas and scores; no duplicate rows, missing shards or foreign files.

    >>> shardsift.verify("./kept", input="./shards/*.parquet")
    <Verification sound: 8 shards, 16 files, 96 rows in, 41 kept; ./kept>

    Reads the whole output. The result's `is_sound` is the verdict, and its `faults` say what is wrong with which file.

    target: the folder, bucket or hf:// dataset of an output, or the id of a run. Only a run's id needs Redis.
    input: also compare every row with this input.
    drop_list: the files of the run's drop lists that are not on the Hub. With `input`, all of them must be named.
    redis_url: as for `status`.

    Raises UsageError if shardsift has published nothing there, TransientError if the network fails.
    """
    with _errors():
        uri, published_run = output_of(text_of_place(target), read_settings(redis_url=redis_url))
        return verify_output(
            uri,
            source=texts_of_places(input),
            drop_lists=texts_of_places(drop_list, "drop_list"),
            published_run=published_run,
        )


def pause(run_id: str | None = None, *, redis_url: str | None = None) -> RunStatus:
    """Pause a run. Workers give its shards back at the next batch, and are free for other runs.

    run_id: a run's id, or its unique beginning. Default: the only run that can be paused.
    """
    with _run_of(run_id, redis_url, to="pause") as (_, ledger, run):
        ledger.pause(run)
        return run_status(ledger, run)


def resume(run_id: str | None = None, *, max_cost: float | None = None, redis_url: str | None = None) -> RunStatus:
    """Resume a paused run.

    run_id: a run's id, or its unique beginning. Default: the only paused run.
    max_cost: a higher limit for a run that was paused for its cost; 0 for no limit.
    """
    with _run_of(run_id, redis_url, to="resume") as (settings, ledger, run):
        resume_run(ledger, run, max_cost=max_cost)
        send_shards(settings, ledger, run)
        return run_status(ledger, run)


def cancel(run_id: str | None = None, *, redis_url: str | None = None) -> RunStatus:
    """Stop a run. Workers stop at the next batch, and finished shards are kept; `retry` resumes it.

    run_id: a run's id, or its unique beginning. Default: the only run that can be cancelled.
    """
    with _run_of(run_id, redis_url, to="cancel") as (_, ledger, run):
        ledger.cancel(run)
        return run_status(ledger, run)


def retry(run_id: str | None = None, *, redis_url: str | None = None) -> RunStatus:
    """Queue the failed shards of a run again, with the current content of their files, or resume a cancelled run.

    run_id: a run's id, or its unique beginning. Default: the only run that can be retried.
    """
    with _run_of(run_id, redis_url, to="retry") as (settings, ledger, run):
        with_retries(retry_run)(ledger, run)
        send_shards(settings, ledger, run)
        return run_status(ledger, run)


def _check_workers(workers: Any) -> None:
    if workers is not None:
        check_number("workers", workers, least=1, whole=True)


@contextmanager
def _run_of(run_id: str | None, redis_url: str | None, *, to: str) -> Iterator[tuple[Settings, Ledger, str]]:
    with _errors(), open_ledger_of(run_id, read_settings(redis_url=redis_url), to=to) as found:
        yield found


@contextmanager
def _errors() -> Iterator[None]:
    try:
        with keyword_errors():
            yield
    except redis.RedisError as error:
        raise as_ours(error) from error
