"""The read-only Runs page: its addresses and their JSON, behind Flower's login. docs/runs_page.md describes them."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import resources
from typing import TypeAlias

import redis
from flower.app import Flower, rewrite_handler
from flower.views import BaseHandler
from tornado.web import StaticFileHandler, authenticated, url

from shardsift.fleet.errors import ShardError, TransientError, UsageError
from shardsift.fleet.inputs.formats import has_footer
from shardsift.fleet.inputs.identity import identity_now
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.redact import redacted
from shardsift.fleet.process.redis_away import as_ours
from shardsift.fleet.run.spec import Shard
from shardsift.producer.scores.distribution import filter_threshold, score_bins, threshold_column
from shardsift.producer.scores.scored_run import NearRow, ScoredRun, rows_near
from shardsift.producer.status import Present, RunStatus, run_status
from shardsift.producer.status.advice import level, verdict, what_next, why_a_person
from shardsift.producer.status.screen import present_line, status_lines
from shardsift.producer.status.watch import progress_line

_POLL_SECONDS = 2.0
_THREADS = 4
# Everything is loaded from this server. Bootstrap's style sheet has its pictures as data: URLs.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def add_runs_pages(application: Flower, ledger: Ledger) -> None:
    """Add the pages about runs to Flower. All browsers share what the pages read, through `SharedReads`."""
    reads_of_ledger = SharedReads(ThreadPoolExecutor(_THREADS, thread_name_prefix="runs page"), seconds=_POLL_SECONDS)
    # Files are read in a separate thread, so that a slow storage does not delay other pages.
    one_thread = ThreadPoolExecutor(1, thread_name_prefix="rows of the runs page")
    reads_of_files = SharedReads(one_thread, seconds=_POLL_SECONDS)

    def shared(reads: SharedReads, read: Callable[..., object]) -> Read:
        return lambda *run_id: reads.get((read, *run_id), lambda: read(ledger, *run_id))

    runs, run, rows = (
        shared(reads_of_ledger, runs_list),
        shared(reads_of_ledger, run_json),
        shared(reads_of_files, rows_json),
    )
    assets = {"path": str(resources.files("shardsift.producer.flower").joinpath("static"))}
    handlers = [
        url(r"/runs", RunsPage, {"read": runs}, name="runs"),
        url(r"/runs/([^/]+)", RunPage, {"read": run}, name="run"),
        url(r"/api/runs", Json, {"read": runs}, name="api-runs"),
        url(r"/api/runs/([^/]+)", Json, {"read": run}, name="api-run"),
        url(r"/api/runs/([^/]+)/rows", Json, {"read": rows}, name="api-rows"),
        url(r"/runs-assets/(.*)", Assets, assets, name="runs-assets"),
    ]
    if application.options.url_prefix:
        handlers = [rewrite_handler(handler, application.options.url_prefix) for handler in handlers]
    application.add_handlers(".*", handlers)


Read: TypeAlias = Callable[..., Awaitable[bytes]]  # takes a run's id, if the address has one


class _Handler(BaseHandler):  # type: ignore[misc]
    SUPPORTED_METHODS = ("GET",)

    def initialize(self, read: Read) -> None:
        self.read = read

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Content-Security-Policy", _POLICY)
        self.set_header("Referrer-Policy", "same-origin")
        self.set_header("Cache-Control", "no-store")


class RunsPage(_Handler):
    @authenticated
    async def get(self) -> None:
        self.render("runs.html")


class RunPage(_Handler):
    @authenticated
    async def get(self, run_id: str) -> None:
        try:
            with suppress(redis.RedisError):  # the page shows the error and polls until Redis answers
                await self.read(run_id)
        except UsageError as unknown:
            self.set_status(404)
            self.render("404.html", message=str(unknown))
            return
        self.render("run.html", run_id=run_id)


class Json(_Handler):
    @authenticated
    async def get(self, *run_id: str) -> None:
        """Send the JSON about all runs, or about the run with this id. If it cannot be read, send `{"error": …}`.

        Flower's application compresses the answer.
        """
        self.set_header("Content-Type", "application/json; charset=UTF-8")
        try:
            self.finish(await self.read(*run_id))
        except UsageError as unknown:
            self._refuse(404, str(unknown))
        except (ShardError, TransientError) as error:
            self._refuse(502, redacted(str(error)))
        except redis.RedisError as error:
            self._refuse(503, redacted(str(as_ours(error))))

    def _refuse(self, status: int, error: str) -> None:
        self.set_status(status)
        self.finish(json.dumps({"error": error}))


class Assets(StaticFileHandler):
    """The style sheet and script. Like Flower's own, they need no login."""

    def set_extra_headers(self, path: str) -> None:
        self.set_header("Cache-Control", "no-cache")  # so that an upgrade takes effect


# The JSON of the pages: the list of runs, and for one run its status (as in `producer status --json`), scores and rows.

_MOST_RUNS = 50
_MOST_FAILURES = 20  # with their tracebacks
_MOST_LISTED = 1000  # workers, machines and running shards
_ROWS = 9
_MOST_ROWS = 5000  # read from the beginning of a shard
_MOST_CHARACTERS = 500


def run_json(ledger: Ledger, run_id: str) -> dict[str, object]:
    """Return the status of a run and its charts. Raises UsageError for an unknown run, and redis.RedisError."""
    status = run_status(ledger, run_id, most_failures=_MOST_FAILURES)
    return {
        **_bounded(status),
        **summary(status),
        "next": _what_next(status),
        "lines": [line.split(maxsplit=1) for line in status_lines(status) if not line.startswith(" ")],
        "scores": _score_charts(status),
    }


def rows_json(ledger: Ledger, run_id: str) -> dict[str, object]:
    """Return some rows of a random finished shard: near the threshold if the filter is a threshold, otherwise evenly spaced.

    Raises UsageError if no shard is done, ShardError if a file cannot be read, TransientError if the network fails.
    """
    spec, receipts = ledger.spec(run_id), tuple(ledger.some_receipts(run_id, 1))
    if not receipts:
        raise UsageError(f"No shard of {run_id} is done yet.")
    run = ScoredRun(name=run_id, spec=spec, output_uri=spec.output_uri, shards=1, receipts=receipts)
    column = threshold_column(spec)
    near = filter_threshold(spec.where, column)
    shards = {shard.name: _as_it_is_now(shard) for shard in ledger.shards(run_id, [receipts[0].shard])}
    rows = rows_near(run, column, near=near, count=_ROWS, source=shards, most_rows=_MOST_ROWS)
    return {"shard": receipts[0].shard, "column": column, "threshold": near, "rows": [_row(row) for row in rows]}


def _as_it_is_now(shard: Shard) -> Shard:
    """Return the shard with its file's current identity, so that reading texts fails if the file has changed since scoring.

    Returns shards of JSON Lines and CSV unchanged, because identifying such a file reads all of it.
    """
    return replace(shard, identity=identity_now(shard.uri)[0]) if has_footer(shard.uri) else shard


def _row(row: NearRow) -> dict[str, object]:
    return asdict(row) | {"score": round(row.score, 3), "text": " ".join((row.text or "").split())[:_MOST_CHARACTERS]}


def runs_list(ledger: Ledger) -> dict[str, object]:
    run_ids, present = ledger.run_ids(), Present.read(ledger.redis)
    return {
        "present": present_line(present),
        "runs_in_all": len(run_ids),
        "runs": [_listed(ledger, run_id, present) for run_id in run_ids[:_MOST_RUNS]],
    }


def _listed(ledger: Ledger, run_id: str, present: Present) -> dict[str, object]:
    try:
        status = run_status(ledger, run_id, present=present, most_failures=1)
    except UsageError as error:
        return {"run_id": run_id, "error": str(error)}
    said = summary(status)
    return {
        "run_id": status.run_id,
        "state": status.word,
        "counts": asdict(status.counts),
        "rows_per_second": round(status.rows_per_second, 1),
        **said,
        "why": said["headline"] if why_a_person(status) else None,
    }


def summary(status: RunStatus) -> dict[str, object]:
    said = verdict(_with_one_failure(status))
    without_word = said.removeprefix(f"{status.word}: ").removeprefix(f"{status.word}, ")  # the page shows it already
    return {
        "level": level(status),
        "headline": progress_line(status) if said == status.word else without_word,
        "time_left": status.time_left or None,
    }


def _bounded(status: RunStatus) -> dict[str, object]:
    """Return the JSON of `producer status`, with at most _MOST_LISTED workers, machines and running shards.

    It has at most _MOST_FAILURES retries, without their tracebacks.
    """
    return replace(
        status,
        workers=status.workers[:_MOST_LISTED],
        machines=status.machines[:_MOST_LISTED],
        running=status.running[:_MOST_LISTED],
        retries=tuple(replace(one, traceback="") for one in status.retries[:_MOST_FAILURES]),
    ).as_json() | {"workers_in_all": len(status.workers)}


def _what_next(status: RunStatus) -> list[str]:
    """Return the advice of `producer status`, without the lines that are already in `verdict(status)`.

    For a published run, also says that the page does not check the output.
    """
    found = _with_one_failure(status)
    lines = [line for line in what_next(found) if line not in verdict(found) and not line.startswith(" ")]
    return (
        [*lines, f"This page does not look at the output: producer status {status.run_id}"]
        if status.is_published
        else lines
    )


def _with_one_failure(status: RunStatus) -> RunStatus:
    """Keep only the first failed shard, because the page lists all of them elsewhere."""
    return replace(status, failures=status.failures[:1])


def _score_charts(status: RunStatus) -> list[dict[str, object]]:
    return [
        {
            "column": column,
            "rows": histogram.rows,
            "threshold": filter_threshold(status.where, column),
            "bins": [asdict(one) for one in score_bins(histogram)],
        }
        for column, histogram in status.histograms.items()
        if histogram.rows
    ]


# Reads that browsers share. They run in other threads, because Flower serves all browsers in one.

_MOST_KEPT = 64


@dataclass(kw_only=True)
class _Read:
    answer: asyncio.Future[bytes]
    ended_at: float | None = None


class SharedReads:
    """Cache the result of each read for all browsers, by key. A result expires `seconds` after its read ended.

    Caches errors too, so that a server that is down is not asked more often. Call only in the event loop's thread.
    """

    def __init__(self, executor: Executor, *, seconds: float) -> None:
        self._executor, self._seconds = executor, seconds
        self._reads: dict[Hashable, _Read] = {}

    async def get(self, key: Hashable, read: Callable[[], object]) -> bytes:
        loop = asyncio.get_running_loop()
        found = self._reads.get(key)
        if found is None or (found.ended_at is not None and loop.time() - found.ended_at >= self._seconds):
            found = self._begin(loop, read)
            self._reads.pop(key, None)
            self._reads[key] = found  # move to the end
            for oldest in list(self._reads)[:-_MOST_KEPT]:
                del self._reads[oldest]
        return await found.answer

    def _begin(self, loop: asyncio.AbstractEventLoop, read: Callable[[], object]) -> _Read:
        begun = _Read(answer=loop.run_in_executor(self._executor, lambda: json.dumps(read()).encode()))

        def note_end(_: asyncio.Future[bytes]) -> None:
            begun.ended_at = loop.time()

        begun.answer.add_done_callback(note_end)
        return begun
