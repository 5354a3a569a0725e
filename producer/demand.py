"""How many workers the open shards of each queue need, as shardsift/fleet/presence/demand.py counts them."""

import json
import math
import signal
import socketserver
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

import redis
from rich.table import Table

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.presence.announcements import list_workers
from shardsift.fleet.presence.demand import open_demands
from shardsift.fleet.process.command_line import say
from shardsift.fleet.process.redis_away import as_ours

_NUMBERS = ("queued", "running", "workers", "wanted")


@dataclass(frozen=True, kw_only=True)
class QueueDemand:
    """`workers` serve the queue now, or load its models. `wanted` is how many should."""

    queue: str
    models: tuple[str, ...]
    dtype: str
    queued: int
    running: int
    workers: int
    wanted: int


def queue_demands(ledger: Ledger, *, shards_per_worker: int) -> list[QueueDemand]:
    """One for each queue with open shards, that of the oldest run first."""
    serving = Counter(worker.queue for worker in list_workers(ledger.redis) if worker.activity != "stopping")
    return [
        QueueDemand(
            queue=demand.queue,
            models=tuple(model.name for model in demand.load.models),
            dtype=demand.load.dtype,
            queued=demand.queued,
            running=demand.running,
            workers=serving[demand.queue],
            wanted=math.ceil((demand.queued + demand.running) / shards_per_worker),
        )
        for demand in open_demands(ledger)
    ]


def demand_json(demands: Sequence[QueueDemand]) -> dict[str, Any]:
    """Sums over all queues, then each queue. The sums are there, and 0, if nothing is open."""
    sums = {name: sum(getattr(demand, name) for demand in demands) for name in _NUMBERS}
    return {**sums, "queues": [asdict(demand) for demand in demands]}


def demand_table(demands: Sequence[QueueDemand]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("models", overflow="fold")
    table.add_column("dtype")
    for name in _NUMBERS:
        table.add_column(name, justify="right")
    for demand in demands:
        table.add_row(
            " and ".join(demand.models),
            demand.dtype,
            *(f"{getattr(demand, name):,}" for name in _NUMBERS),
        )
    return table


# Serve the demand as JSON over HTTP, for autoscalers that poll an address, such as KEDA's `metrics-api`.
#
# Read-only and without a password: anyone who reaches it learns the names of models and how many shards are open.

_REQUEST_SECONDS = 10.0


class DemandServer(socketserver.ThreadingTCPServer):
    """Answers each GET with what `read` returns, as JSON, and with 503 while Redis does not answer."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: str, port: int, read: Callable[[], object]) -> None:
        self.read = read
        super().__init__((address, port), _Handler)

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/"


def serve_demand(read: Callable[[], object], *, address: str, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C. Raises UsageError if the port is taken."""
    try:
        server = DemandServer(address, port, read)
    except OSError as error:
        raise UsageError(
            f"Cannot listen on {address}:{port}: {error.strerror}. Choose another --serve or --address."
        ) from error
    signal.signal(signal.SIGTERM, _exit)  # as process 1 of a container, it would otherwise ignore the signal
    with server:
        say(f"The demand is served at {server.url}")
        server.serve_forever()


def _exit(_number: int, _frame: object) -> None:
    raise SystemExit(0)


class _Handler(BaseHTTPRequestHandler):
    server: DemandServer
    timeout = _REQUEST_SECONDS

    def do_GET(self) -> None:
        try:
            self._answer(HTTPStatus.OK, self.server.read())
        except redis.RedisError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(as_ours(error))})

    def _answer(self, status: HTTPStatus, body: object) -> None:
        content = json.dumps(body).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """An autoscaler asks twice a minute: no line for each request."""
