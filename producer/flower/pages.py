"""The addresses of the Runs page: pages and JSON, behind Flower's login, to read only. docs/runs_page.md describes them."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from typing import TypeAlias

import redis
from flower.app import Flower, rewrite_handler
from flower.views import BaseHandler
from tornado.web import StaticFileHandler, authenticated, url

from fleet.errors import ShardError, TransientError, UsageError
from fleet.ledger import Ledger
from fleet.process.redact import redacted
from fleet.process.redis_away import as_ours
from producer.flower.run_page import rows_json, run_json, runs_list

_LOOK_SECONDS = 2.0
_THREADS = 4
# Everything comes from this server. Pictures of Bootstrap are in its style sheet, as data.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def add_runs_pages(application: Flower, ledger: Ledger) -> None:
    """Add the pages. All browsers share the reads of the ledger."""
    reads_of_ledger = SharedReads(ThreadPoolExecutor(_THREADS, thread_name_prefix="runs page"), seconds=_LOOK_SECONDS)
    # Files are read by one thread of their own, so that a slow storage delays nothing else.
    one_thread = ThreadPoolExecutor(1, thread_name_prefix="rows of the runs page")
    reads_of_files = SharedReads(one_thread, seconds=_LOOK_SECONDS)

    def shared(reads: SharedReads, read: Callable[..., object]) -> Read:
        return lambda *run_id: reads.get((read, *run_id), lambda: read(ledger, *run_id))

    runs, run, rows = (
        shared(reads_of_ledger, runs_list),
        shared(reads_of_ledger, run_json),
        shared(reads_of_files, rows_json),
    )
    assets = {"path": str(resources.files("producer.flower").joinpath("static"))}
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


Read: TypeAlias = Callable[..., Awaitable[bytes]]  # of a run's id, if the address has one


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
            with suppress(redis.RedisError):  # the page says so, and goes on when that is over
                await self.read(run_id)
        except UsageError as unknown:
            self.set_status(404)
            self.render("404.html", message=str(unknown))
            return
        self.render("run.html", run_id=run_id)


class Json(_Handler):
    @authenticated
    async def get(self, *run_id: str) -> None:
        """Send the JSON, or the reason why there is none as `{"error": …}`. Flower's application compresses it."""
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
    """Style and script, which anyone may read, like Flower's."""

    def set_extra_headers(self, path: str) -> None:
        self.set_header("Cache-Control", "no-cache")  # asked for again after an upgrade, and not sent if unchanged


# Reads that many browsers share. Flower has one thread for all of them, so reading happens in other threads.

_MOST_KEPT = 64


@dataclass(kw_only=True)
class _Read:
    answer: asyncio.Future[bytes]
    ended_at: float | None = None


class SharedReads:
    """JSON. However many ask for a key, it is read by one thread at a time, and again only `seconds` after the last read ended.

    An error is shared as well, so a server that does not answer is asked as rarely. Used by the thread of the event loop only.
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
            self._reads[key] = found  # as the newest
            for oldest in list(self._reads)[:-_MOST_KEPT]:
                del self._reads[oldest]
        return await found.answer

    def _begin(self, loop: asyncio.AbstractEventLoop, read: Callable[[], object]) -> _Read:
        begun = _Read(answer=loop.run_in_executor(self._executor, lambda: json.dumps(read()).encode()))

        def note_end(_: asyncio.Future[bytes]) -> None:
            begun.ended_at = loop.time()

        begun.answer.add_done_callback(note_end)
        return begun
