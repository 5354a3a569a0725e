"""Read the broker's queues directly: their lists in Redis, how long they are, and whose messages they hold.

Celery has no such calls. The queues are looked at through the ledger's client, which requires that the broker and the ledger
are on the same server; both come from REDIS_URL.
"""

import json
from collections.abc import Iterator

import redis

STARTED, NEW = 0, 1  # Celery's priorities of a message: shards that were started before go first
_PRIORITY_SEPARATOR = "\x06\x16"  # kombu's own
_UNACKNOWLEDGED = ("unacked", "unacked_index")  # kombu's own: messages that a process has taken and not acknowledged


def queue_lists(queue: str) -> list[str]:
    """The Redis lists that hold a queue's messages, in the order in which workers empty them: started shards, new ones."""
    return [queue, f"{queue}{_PRIORITY_SEPARATOR}{NEW}"]


def queue_length(client: redis.Redis, queue: str) -> int:
    """The number of messages in a queue that no process has taken."""
    return sum(int(client.llen(name)) for name in queue_lists(queue))


def shards_in_queue(client: redis.Redis, queue: str, run_id: str) -> Iterator[str]:
    """The shards of a run that have a message in the queue."""
    for name in queue_lists(queue):
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
