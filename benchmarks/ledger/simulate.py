"""Simulated workers. They make the same calls to Redis as real workers, in the same order, and pause instead of scoring.

A process plays many of them in one thread, so that a call's time is Redis' answer and not a wait for Python's lock.
"""

import heapq
import random
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ParamSpec, TypeVar

from celery import Celery
from kombu.entity import Queue
from kombu.message import Message

from benchmarks.ledger.records import WINDOW_SCORES, receipt_of
from benchmarks.results import timed
from shardsift.fleet.dispatch import send_due_shards, top_up
from shardsift.fleet.ledger import Claim, Ledger
from shardsift.fleet.process.broker import make_app
from shardsift.fleet.process.settings import Settings

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Call(StrEnum):
    PING = "ping"  # the control: the latency of the machine and the connection alone
    TAKE = "take a message"
    CLAIM = "claim"
    RENEW = "renew"
    SAVE = "save_scores"
    COMPLETE = "complete"
    TOP_UP = "top_up"


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The pace of a worker. It saves scores after each window, and renews its lease after a number of windows."""

    windows: int
    window_seconds: float  # 0: as fast as Redis answers
    windows_per_renewal: int


@dataclass(kw_only=True)
class Played:
    seconds: dict[Call, list[float]] = field(default_factory=lambda: {call: [] for call in Call})
    last_completion: float = 0.0  # time.monotonic, which all processes of a machine share

    def timed(self, call: Call, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        answer, seconds = timed(function, *args, **kwargs)
        self.seconds[call].append(seconds)
        return answer


def play(redis_url: str, run_id: str, workers: list[str], pace: Pace, seconds: float) -> Played:
    """Simulate workers until no shard is due, or for `seconds`. Then the workers give their shards back."""
    settings = Settings(redis_url=redis_url)
    app, played = make_app("simulated worker", settings), Played()
    with ExitStack() as stack:
        stack.callback(app.close)
        connection = stack.enter_context(app.connection_for_read())
        lives = []
        for name in workers:
            ledger = Ledger.connect(settings)
            stack.callback(ledger.redis.close)
            messages = Queue(ledger.spec(run_id).queue)(connection.channel())
            messages.queue_declare()
            send_due_shards(app, ledger, run_id)  # the first call opens the connection
            lives.append(_Worker(name, run_id, ledger, app, messages, pace, played).life())
        _live(lives, until=time.monotonic() + seconds)
    return played


def _live(lives: list[Generator[float, None, None]], *, until: float) -> None:
    turns = [(0.0, number) for number in range(len(lives))]
    while turns:
        due, number = heapq.heappop(turns)
        time.sleep(max(0.0, min(due, until) - time.monotonic()))
        if time.monotonic() >= until:
            break
        pause = next(lives[number], None)
        if pause is not None:
            heapq.heappush(turns, (time.monotonic() + pause, number))
    for life in lives:
        life.close()


class _Worker:
    def __init__(
        self,
        name: str,
        run_id: str,
        ledger: Ledger,
        app: Celery,
        messages: Queue,
        pace: Pace,
        played: Played,
    ) -> None:
        self._name, self._run_id, self._queue = name, run_id, ledger.spec(run_id).queue
        self._ledger, self._app, self._messages = ledger, app, messages
        self._pace, self._played = pace, played

    def life(self) -> Generator[float, None, None]:
        """Work on one shard after another. Yields pauses in seconds."""
        yield random.uniform(0, self._pace.windows * self._pace.window_seconds)  # real workers do not all start at once
        while message := self._next_message():
            self._timed(Call.PING, self._ledger.redis.ping)
            claim = self._timed(
                Call.CLAIM, self._ledger.claim, self._run_id, message.decode()[1]["shard"], owner=self._name
            )
            if isinstance(claim, Claim):
                yield from self._score(claim)
            message.ack()

    def _next_message(self) -> Message | None:
        message: Message | None = self._timed(Call.TAKE, self._messages.get, accept=["json"])
        if message is None and self._top_up():
            message = self._messages.get(accept=["json"])
        return message

    def _score(self, claim: Claim) -> Generator[float, None, None]:
        try:
            for window in range(self._pace.windows):
                yield random.uniform(0.5, 1.5) * self._pace.window_seconds
                self._timed(Call.SAVE, self._ledger.save_scores, claim, window * 8192, WINDOW_SCORES)
                if (window + 1) % self._pace.windows_per_renewal == 0:
                    self._timed(Call.RENEW, self._ledger.renew, claim, rows=(window + 1) * 8192)
        except GeneratorExit:
            self._ledger.release(claim)
            raise
        receipt = receipt_of(self._run_id, claim.shard, token=claim.token, worker=self._name)
        self._timed(Call.COMPLETE, self._ledger.complete, claim, receipt)
        self._played.last_completion = time.monotonic()
        self._top_up()

    def _top_up(self) -> int:
        return self._timed(Call.TOP_UP, top_up, self._app, self._ledger, self._run_id, self._queue)

    def _timed(self, call: Call, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return self._played.timed(call, function, *args, **kwargs)
