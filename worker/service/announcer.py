"""Announce to the fleet what a worker is doing."""

import logging
import threading
import time
from contextlib import suppress
from dataclasses import replace

import redis

from shardsift.fleet.presence.announcements import ANNOUNCE_SECONDS, Activity, WorkerState, announce, withdraw

_WITHDRAW_SECONDS = 0.3
logger = logging.getLogger(__name__)


class Announcer:
    """Announces a worker's state immediately after a change, and every few seconds.

    Runs in a thread, because Redis may be slow.
    """

    def __init__(self, client: redis.Redis, state: WorkerState) -> None:
        self._client = client
        self._seen = state
        self._since = time.monotonic()
        self._changed = threading.Event()
        self._has_ended = False
        self._speaking = threading.Lock()  # not for the main thread, which a signal handler may interrupt
        threading.Thread(target=self._announce, name="announcer", daemon=True).start()

    def see(self, device: str | None, held: tuple[str, str] | None, *, is_stopping: bool) -> None:
        """Note the current state.

        `device` is None until a child has loaded its model. `held` is the run and the shard that the worker works on,
        if any.
        """
        activity: Activity = "stopping" if is_stopping else "loading" if not device else "busy" if held else "ready"
        run_id, shard = held or (None, None)
        seen = replace(self._seen, activity=activity, device=device, run_id=run_id, shard=shard)
        if seen != self._seen:
            if activity != self._seen.activity:
                self._since = time.monotonic()
            self._seen = seen
            self._changed.set()

    def withdraw(self) -> None:
        """Stop announcing, and remove this worker's record, which would otherwise stay until it expires.

        Waits for Redis only for a moment. May be called in a signal handler.
        """
        self._has_ended = True
        thread = threading.Thread(target=self._withdraw, name="withdraw", daemon=True)
        thread.start()
        thread.join(_WITHDRAW_SECONDS)

    def _withdraw(self) -> None:
        with self._speaking, suppress(redis.RedisError):  # if it fails, the record expires by itself
            withdraw(self._client, self._seen.name)

    def _announce(self) -> None:
        while not self._has_ended:
            state = replace(self._seen, activity_seconds=round(time.monotonic() - self._since, 1))
            try:
                with self._speaking:
                    if not self._has_ended:
                        announce(self._client, state)
            except redis.RedisError as error:
                logger.debug("Not announced: %s", error)
            self._changed.wait(ANNOUNCE_SECONDS)
            self._changed.clear()
