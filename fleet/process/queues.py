"""The broker's queues, looked at directly: their lists in Redis, how long they are, and whose messages they hold.

Celery has no such calls. The queues are looked at through the ledger's client, which requires that the broker and the ledger
are on the same server; both come from REDIS_URL.
"""

import json
from collections.abc import Iterator

import redis

from fleet.errors import UsageError

HIGHEST = 2  # priority of a run, and -2 the lowest: Celery's messages have ten priorities, of which a run uses two
MESSAGE_PRIORITIES = tuple(range(10))  # Celery's: 0 goes first
_PRIORITY_SEPARATOR = "\x06\x16"  # kombu's own
_UNACKNOWLEDGED = ("unacked", "unacked_index")  # kombu's own: messages that a process has taken and not acknowledged


def message_priorities(priority: int) -> tuple[int, int]:
    """Celery's priorities for a run of this priority: of shards that were started before, and of new ones."""
    first = 2 * (HIGHEST - priority)
    return first, first + 1


def queue_lists(queue: str, priority: int | None = None) -> list[str]:
    """The Redis lists that hold a queue's messages, in the order in which workers empty them.

    With the `priority` of a run, only the two lists for such runs.
    """
    numbers = MESSAGE_PRIORITIES if priority is None else message_priorities(priority)
    return [f"{queue}{_PRIORITY_SEPARATOR}{number}" if number else queue for number in numbers]


def queue_length(client: redis.Redis, queue: str, priority: int | None = None) -> int:
    """The number of messages in a queue that no process has taken; with `priority`, of those of runs with this priority."""
    lengths = _lengths(client, queue)
    return sum(lengths[name] for name in queue_lists(queue, priority))


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
        for _, shard in _messages_of(run_id, client, name):
            yield shard


def remove_messages(client: redis.Redis, queue: str, run_id: str) -> Iterator[str]:
    """Remove the messages of a run from its queue. Yields their shards, without those that a worker takes meanwhile."""
    for name in _lengths(client, queue):
        found = list(_messages_of(run_id, client, name))
        pipeline = client.pipeline(transaction=False)
        for message, _ in found:
            pipeline.lrem(name, -1, message)  # type: ignore[arg-type]  # messages are bytes
        yield from (shard for removed, (_, shard) in zip(pipeline.execute(), found, strict=True) if removed)


def _messages_of(run_id: str, client: redis.Redis, name: str) -> Iterator[tuple[bytes, str]]:
    """The messages of a run in a list, and the shard of each, from its id."""
    for message in client.execute_command("LRANGE", name, 0, -1, NEVER_DECODE=True):  # type: ignore[no-untyped-call]
        try:
            task_id = str(json.loads(message)["headers"]["id"])
        except (ValueError, KeyError, TypeError):  # not one of our messages
            continue
        if task_id.startswith(f"{run_id}:"):
            yield message, task_id.removeprefix(f"{run_id}:").rpartition(":")[0]


def drop_messages(client: redis.Redis, queue: str) -> None:
    """Remove a queue's messages, and those that any process has taken. Only if no process is running."""
    client.delete(*queue_lists(queue), *_UNACKNOWLEDGED)
