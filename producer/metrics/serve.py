"""Serve the metrics over HTTP, read-only and without a password: `GET /metrics`."""

from prometheus_client import CollectorRegistry, start_http_server

from fleet.errors import UsageError
from fleet.ledger import Ledger
from producer.metrics.collect import FleetCollector


def serve_metrics(ledger: Ledger, *, address: str, port: int) -> None:
    """Serve in a thread until the process ends. Raises UsageError if the port is taken."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector(ledger))
    try:
        start_http_server(port, address, registry=registry)
    except OSError as error:
        raise UsageError(
            f"Cannot serve metrics on {address}:{port}: {error.strerror}. Choose another SHARDSIFT_METRICS_PORT or "
            "SHARDSIFT_METRICS_ADDRESS."
        ) from error
