"""Where the traces of attempts go: to an OpenTelemetry collector, or nowhere."""

from typing import Protocol

from fleet.errors import UsageError
from fleet.ledger import Claim
from fleet.settings import Settings
from worker.service.steps import Steps


class Traces(Protocol):
    """Takes traces. Never raises, and waits for no collector."""

    def send(self, claim: Claim, steps: Steps, *, worker: str) -> None:
        """Send the trace of an attempt that has ended, soon."""

    def close(self) -> None:
        """The process ends: send what is left, in a second at most."""


class NoTraces:
    def send(self, claim: Claim, steps: Steps, *, worker: str) -> None: ...

    def close(self) -> None: ...


def open_traces(settings: Settings) -> Traces:
    """Raises UsageError if traces are turned on and OpenTelemetry is not installed, or its own settings are wrong."""
    if not settings.traces:
        return NoTraces()
    try:
        from worker.service.otel import OtelTraces
    except ImportError as error:
        raise UsageError(
            f"SHARDSIFT_TRACES needs OpenTelemetry ({error}). Install it with: pip install 'shardsift[otel]'"
        ) from error
    return OtelTraces()
