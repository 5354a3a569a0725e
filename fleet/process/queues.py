"""Read the broker's queues directly: their lists in Redis, how long they are, and whose messages they hold.

Celery has no such calls. The queues are looked at through the ledger's client, which requires that the broker and the ledger
are on the same server; both come from REDIS_URL.
"""

import json
from collections.abc import Iterator

import redis

from fleet.errors import UsageError

STARTED, NEW = 0, 1  # Celery's priorities of a message: shards that were started before go first
_PRIORITY_SEPARATOR = "\x06\x16"  # kombu's own
_UNACKNOWLEDGED = ("unacked", "unacked_index")  # kombu's own: messages that a process has taken and not acknowledged


def queue_lists(queue: str) -> list[str]:
    """The Redis lists that hold a queue's messages, in the order in which workers empty them: started shards, new ones."""
    return [queue, f"{queue}{_PRIORITY_SEPARATOR}{NEW}"]


def queue_length(client: redis.Redis, queue: str) -> int:
    """The number of messages in a queue that no process has taken."""
    return sum(_lengths(client, queue).values())


def why_blocked(client: redis.Redis, queue: str) -> str | None:
    """Why no worker can take a message of the queue. None if they can."""
    try:
        _lengths(client, queue)
    except UsageError as error:
        return str(error)
    return None


def _lengths(client: redis.Redis, queue: str) -> dict[str, int]:
    """By list. Raises UsageError if a key with the name of one is no list: then workers take no message of the queue."""
    names, pipeline = queue_lists(queue), client.pipeline()
    for name in names:
        pipeline.llen(name)
    lengths = dict(zip(names, pipeline.execute(raise_on_error=False), strict=True))
    for name, length in lengths.items():
        if "WRONGTYPE" in str(length):
            key = f"$'{name.encode('unicode_escape').decode()}'"  # the shell's way to write the separator
            raise UsageError(
                f"The key {key} in Redis is not a list, so no worker can take a shard from this queue. "
                f"Delete it (redis-cli DEL {key}), then run the same command again."
            )
        if isinstance(length, redis.RedisError):
            raise length
    return lengths


def shards_in_queue(client: redis.Redis, queue: str, run_id: str) -> Iterator[str]:
    """The shards of a run that have a message in the queue."""
    for name in _lengths(client, queue):
        for message in client.execute_command("LRANGE", name, 0, -1, NEVER_DECODE=True):  # type: ignore[no-untyped-call]
            task_id = _task_id(message)
            if task_id.startswith(f"{run_id}:"):
                yield task_id.removeprefix(f"{run_id}:").rpartition(":")[0]


def _task_id(message: bytes) -> str:
    """The id of a message, or an empty string if it is not one of ours."""
    try:
        return str(json.loads(message)["headers"]["id"])
    except (ValueError, KeyError, TypeError):
        return ""


def drop_messages(client: redis.Redis, queue: str) -> None:
    """Remove a queue's messages, and those that any process has taken. Only if no process is running."""
    client.delete(*queue_lists(queue), *_UNACKNOWLEDGED)
