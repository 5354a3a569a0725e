"""The Redis that a command on this machine uses: the fleet's, or the embedded one of `producer run`."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from fleet.errors import UsageError
from fleet.settings import Settings
from producer.local.redis_server import embedded_redis


@contextmanager
def machine_redis(settings: Settings, *, create: bool) -> Iterator[Settings]:
    """The settings with a Redis: the fleet's if REDIS_URL names one, otherwise this machine's own.

    The machine's own is started for the block with the data of earlier runs, unless a `producer run` already runs it.
    """
    if settings.redis_url is not None:
        yield settings
        return
    data_dir = settings.state_dir / "redis"
    if not create and not data_dir.exists():
        raise UsageError("No Redis is named, and there was no `producer run` here. Set REDIS_URL.")
    data_dir.mkdir(parents=True, exist_ok=True)
    with (settings.state_dir / "redis.lock").open("a+") as lock:
        if _is_free(lock.fileno()):
            with embedded_redis(data_dir) as url:
                (settings.state_dir / "redis.url").write_text(url)
                yield _embedded(settings, url)
        elif create:
            raise UsageError(
                f"Another `producer run` is using {settings.state_dir}. Wait for it to end, or set SHARDSIFT_STATE_DIR."
            )
        else:
            yield _embedded(settings, (settings.state_dir / "redis.url").read_text())


def _is_free(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _embedded(settings: Settings, url: str) -> Settings:
    return settings.model_copy(update={"redis_url": url, "redis_is_embedded": True})
