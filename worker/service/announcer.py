"""Announce to the fleet what this worker is doing. A separate thread does it, because Redis may not answer."""

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import redis

from fleet.presence.announcements import ANNOUNCE_SECONDS, Activity, WorkerState, announce, withdraw
from fleet.run.model import Model

logger = logging.getLogger(__name__)


class Announcer:
    """Announces changes at once, and the current state every few seconds. The first state is "loading"."""

    def __init__(self, client: redis.Redis, name: str, queue: str, models: Sequence[Model], dtype: str) -> None:
        self._client = client
        self._fixed = {
            "name": name,
            "queue": queue,
            "model": " + ".join(model.name for model in models),
            "revision": " + ".join(model.revision for model in models),
            "dtype": dtype,
        }
        self._seen: tuple[Activity, str | None, str | None, str | None] = ("loading", None, None, None)
        self._since = time.monotonic()
        self._changed = threading.Event()
        self._has_ended = False
        self._speaking = threading.Lock()  # the main thread never takes it: a signal handler may interrupt that thread
        threading.Thread(target=self._announce, name="announcer", daemon=True).start()

    def see(self, device: str | None, request: Any, *, is_stopping: bool) -> None:
        """Note the current state. `device` is None until a child has loaded its model; `request` is Celery's request."""
        activity: Activity = "stopping" if is_stopping else "loading" if not device else "busy" if request else "ready"
        seen = (activity, device, _field(request, "run_id"), _field(request, "shard"))
        if seen != self._seen:
            if activity != self._seen[0]:
                self._since = time.monotonic()
            self._seen = seen
            self._changed.set()

    def withdraw(self, seconds: float) -> None:
        """Stop announcing, and remove this worker from the fleet's list. Waits for Redis for at most `seconds`.

        May be called in a signal handler.
        """
        self._has_ended = True
        thread = threading.Thread(target=self._withdraw, name="withdraw", daemon=True)
        thread.start()
        thread.join(seconds)

    def _withdraw(self) -> None:
        with self._speaking, suppress(redis.RedisError):  # if it fails, the entry expires after ALIVE_SECONDS
            withdraw(self._client, self._fixed["name"])

    def _announce(self) -> None:
        while not self._has_ended:
            activity, device, run_id, shard = self._seen
            seconds = round(time.monotonic() - self._since, 1)
            state = WorkerState(
                **self._fixed,
                activity=activity,
                activity_seconds=seconds,
                device=device,
                run_id=run_id,
                shard=shard,
            )
            try:
                with self._speaking:
                    if not self._has_ended:
                        announce(self._client, state)
            except redis.RedisError as error:
                logger.debug("Not announced: %s", error)
            self._changed.wait(ANNOUNCE_SECONDS)
            self._changed.clear()


def _field(request: Any, name: str) -> str | None:
    """A field of a message, which may not be one of ours."""
    fields = getattr(request, "kwargs", None)
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if isinstance(value, str) else None
