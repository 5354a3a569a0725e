"""The addresses of the Runs page: pages and JSON, behind Flower's login, to read only. docs/runs_page.md describes them."""

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import resources
from typing import Generic, TypeVar

import redis
from flower.app import Flower, rewrite_handler
from flower.views import BaseHandler
from tornado.web import StaticFileHandler, authenticated, url

from fleet.errors import ShardError, TransientError, UsageError
from fleet.ledger import Ledger
from fleet.process.redact import redacted
from producer.flower.run_page import RunLook, summary
from producer.status import Present, RunStatus, run_status
from producer.status.screen import present_line
from producer.status.verdict import why_a_person

_LOOK_SECONDS = 2.0
_THREADS = 4
_MOST_DIGITS = 18  # of a seed
_MOST_LOOKS = 32  # runs whose names and scores are kept
# Everything comes from this server. Pictures of Bootstrap are in its style sheet, as data.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def add_runs_pages(application: Flower, ledger: Ledger) -> None:
    looks = {"looks": Looks(ledger)}
    assets = {"path": str(resources.files("producer.flower").joinpath("static"))}
    handlers = [
        url(r"/runs", RunsPage, looks, name="runs"),
        url(r"/runs/([^/]+)", RunPage, looks, name="run"),
        url(r"/api/runs", RunsJson, looks, name="api-runs"),
        url(r"/api/runs/([^/]+)", RunJson, looks, name="api-run"),
        url(r"/api/runs/([^/]+)/shards", ShardsJson, looks, name="api-shards"),
        url(r"/api/runs/([^/]+)/rows", RowsJson, looks, name="api-rows"),
        url(r"/runs-assets/(.*)", Assets, assets, name="runs-assets"),
    ]
    if application.options.url_prefix:
        handlers = [rewrite_handler(handler, application.options.url_prefix) for handler in handlers]
    application.add_handlers(".*", handlers)


class Looks:
    """Reads of the ledger, as compressed JSON, shared by all browsers. Methods raise what the reads raise.

    Files are read by one thread of their own, so that a slow storage delays nothing else.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._of_run: Callable[[str], RunLook] = lru_cache(_MOST_LOOKS)(lambda run_id: RunLook(ledger, run_id))
        self._reads = SharedReads[bytes](
            ThreadPoolExecutor(_THREADS, thread_name_prefix="runs page"), seconds=_LOOK_SECONDS
        )
        self._files = SharedReads[bytes](
            ThreadPoolExecutor(1, thread_name_prefix="rows of the runs page"), seconds=_LOOK_SECONDS
        )

    async def runs(self) -> bytes:
        return await self._reads.get("runs", lambda: _compressed(runs_list(self._ledger)))

    async def run(self, run_id: str) -> bytes:
        return await self._reads.get(run_id, lambda: _compressed(self._of_run(run_id).look()))

    async def shards(self, run_id: str, first: str, last: str) -> bytes:
        read = self._of_run(run_id).details
        return await self._reads.get((run_id, first, last), lambda: _compressed({"shards": read(first, last)}))

    async def rows(self, run_id: str, seed: int) -> bytes:
        read = self._of_run(run_id).rows
        return await self._files.get((run_id, seed), lambda: _compressed(read(seed)))


def _compressed(look: dict[str, object]) -> bytes:
    """Once for all browsers, and not in the thread that serves them."""
    return gzip.compress(json.dumps(look).encode(), compresslevel=6)


class _Handler(BaseHandler):  # type: ignore[misc]
    SUPPORTED_METHODS = ("GET",)

    def initialize(self, looks: Looks) -> None:
        self.looks = looks

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
            with suppress(redis.RedisError):  # the page says so, and goes on when that is over
                await self.looks.run(run_id)
        except UsageError as unknown:
            self.set_status(404)
            self.render("404.html", message=str(unknown))
            return
        self.render("run.html", run_id=run_id)


class _Json(_Handler):
    async def answer(self, look: Awaitable[bytes]) -> None:
        """Send a look's JSON, or the reason why there is none as `{"error": …}`."""
        self.set_header("Content-Type", "application/json; charset=UTF-8")
        try:
            self._send(await look)
        except UsageError as unknown:
            self._refuse(404, str(unknown))
        except (ShardError, TransientError) as error:
            self._refuse(502, redacted(str(error)))
        except redis.RedisError as error:
            self._refuse(503, f"Redis does not answer: {redacted(str(error))}")

    def _send(self, compressed: bytes) -> None:
        self.set_header("Vary", "Accept-Encoding")
        if "gzip" in self.request.headers.get("Accept-Encoding", ""):
            self.set_header("Content-Encoding", "gzip")
            self.finish(compressed)
        else:
            self.finish(gzip.decompress(compressed))

    def _refuse(self, status: int, error: str) -> None:
        self.set_status(status)
        self.finish(json.dumps({"error": error}))


class RunsJson(_Json):
    @authenticated
    async def get(self) -> None:
        await self.answer(self.looks.runs())


class RunJson(_Json):
    @authenticated
    async def get(self, run_id: str) -> None:
        await self.answer(self.looks.run(run_id))


class ShardsJson(_Json):
    @authenticated
    async def get(self, run_id: str) -> None:
        first = self.get_query_argument("first")
        await self.answer(self.looks.shards(run_id, first, self.get_query_argument("last", first)))


class RowsJson(_Json):
    @authenticated
    async def get(self, run_id: str) -> None:
        seed = self.get_query_argument("seed", "0")
        if not (seed.isascii() and seed.isdecimal() and len(seed) <= _MOST_DIGITS):
            self._refuse(400, "seed is a whole number.")
            return
        await self.answer(self.looks.rows(run_id, int(seed)))


class Assets(StaticFileHandler):
    """Style and script, which anyone may read, like Flower's."""

    def set_extra_headers(self, path: str) -> None:
        self.set_header("Cache-Control", "no-cache")  # asked for again after an upgrade, and not sent if unchanged


# What the Runs page lists: the newest runs with their state, as JSON.

_MOST_RUNS = 50


def runs_list(ledger: Ledger) -> dict[str, object]:
    """Raises redis.RedisError."""
    run_ids, present = ledger.run_ids(), Present.read(ledger.redis)
    return {
        "present": present_line(present),
        "runs_in_all": len(run_ids),
        "runs": [_row(run_status(ledger, run_id, present=present, most_failures=1)) for run_id in run_ids[:_MOST_RUNS]],
    }


def _row(status: RunStatus) -> dict[str, object]:
    return {
        "run_id": status.run_id,
        "state": status.word,
        "counts": asdict(status.counts),
        "rows_per_second": round(status.rows_per_second, 1),
        **(said := summary(status)),
        "why": said["headline"] if why_a_person(status) else None,
    }


# Reads that many browsers share. Flower has one thread for all of them, so reading happens in other threads.

T = TypeVar("T")
_MOST_KEPT = 64


@dataclass(kw_only=True)
class _Read(Generic[T]):
    answer: asyncio.Future[T]
    ended_at: float | None = None


class SharedReads(Generic[T]):
    """However many ask for a key, it is read by one thread at a time, and again only `seconds` after the last read ended.

    An error is shared as well, so a server that does not answer is asked as rarely. Used by the thread of the event loop only.
    """

    def __init__(self, executor: Executor, *, seconds: float) -> None:
        self._executor, self._seconds = executor, seconds
        self._reads: dict[Hashable, _Read[T]] = {}

    async def get(self, key: Hashable, read: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        found = self._reads.get(key)
        if found is None or (found.ended_at is not None and loop.time() - found.ended_at >= self._seconds):
            found = self._begin(loop, read)
            self._reads.pop(key, None)
            self._reads[key] = found  # as the newest
            for oldest in list(self._reads)[:-_MOST_KEPT]:
                del self._reads[oldest]
        return await found.answer

    def _begin(self, loop: asyncio.AbstractEventLoop, read: Callable[[], T]) -> _Read[T]:
        begun = _Read(answer=loop.run_in_executor(self._executor, read))

        def note_end(_: asyncio.Future[T]) -> None:
            begun.ended_at = loop.time()

        begun.answer.add_done_callback(note_end)
        return begun
