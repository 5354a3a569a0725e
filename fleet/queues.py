"""The broker's queues, looked at directly: their lists in Redis, how long they are, and whose messages they hold.

Celery has no such calls. The queues are looked at through the ledger's client, which requires that the broker and the ledger
are on the same server; both come from REDIS_URL.
"""

import json
from collections.abc import Iterator

import redis

FIRST, LATER = 0, 5  # message priorities: shards that were started before go ahead of new ones
_PRIORITY_SEPARATOR = "\x06\x16"  # kombu's own
_UNACKNOWLEDGED = ("unacked", "unacked_index")  # kombu's own: messages that a process has taken and not acknowledged


def queue_lists(queue: str) -> list[str]:
    """The Redis lists that hold a queue's messages, one per priority."""
    return [queue, f"{queue}{_PRIORITY_SEPARATOR}{LATER}"]


def queue_length(client: redis.Redis, queue: str) -> int:
    """The number of messages in a queue that no process has taken."""
    pipeline = client.pipeline()
    for name in queue_lists(queue):
        pipeline.llen(name)
    return sum(pipeline.execute())


def shards_in_queue(client: redis.Redis, queue: str, run_id: str) -> Iterator[str]:
    """The shards of a run that have a message in the queue, from the ids of the messages."""
    for name in queue_lists(queue):
        for message in client.execute_command("LRANGE", name, 0, -1, NEVER_DECODE=True):  # type: ignore[no-untyped-call]
            try:
                task_id = str(json.loads(message)["headers"]["id"])
            except (ValueError, KeyError, TypeError):  # not one of our messages
                continue
            if task_id.startswith(f"{run_id}:"):
                yield task_id.removeprefix(f"{run_id}:").rpartition(":")[0]


def drop_messages(client: redis.Redis, queue: str) -> None:
    """Remove a queue's messages, and those that any process has taken. Only if no process is running."""
    client.delete(*queue_lists(queue), *_UNACKNOWLEDGED)
