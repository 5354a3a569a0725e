"""Send a trace of each shard to an OpenTelemetry collector. No shard waits for the collector or fails with it.

Spans wait in a queue of bounded length, and a thread sends them every few seconds; when the queue is full, spans are
dropped. Everything is set by OpenTelemetry's own variables, such as OTEL_EXPORTER_OTLP_ENDPOINT.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Span, Status, StatusCode, set_span_in_context

from fleet.attempt_report import Phase
from fleet.ledger import Claim
from fleet.redact import redacted
from worker.service.steps import Steps

_CLOSE_SECONDS = 1.0
_WARN_SECONDS = 60.0
_Step = tuple[str, float, float]  # name, beginning, end
logger = logging.getLogger(__name__)


class OtelTraces:
    """All attempts at a shard of a run are spans of one trace, whichever workers made them."""

    def __init__(self) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it warns of every failed batch; see `_Exporter`
        self._ids = _IdOfShard()
        self._provider = TracerProvider(resource=_resource(), id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(_Exporter(OTLPSpanExporter())))
        self._tracer = self._provider.get_tracer("shardsift")

    def send(self, claim: Claim, steps: Steps, *, worker: str) -> None:
        try:
            self._send(claim, steps, worker)
        except Exception as error:  # whatever it is, the shard is more important
            logger.warning("The trace of shard %s was not made: %s", claim.shard.name, error, extra=claim.log_fields)

    def close(self) -> None:
        """The provider itself would wait for the collector for half a minute."""
        thread = threading.Thread(target=self._provider.shutdown, name="last traces", daemon=True)
        thread.start()
        thread.join(_CLOSE_SECONDS)

    def _send(self, claim: Claim, steps: Steps, worker: str) -> None:
        self._ids.of(claim)
        ended_at = steps.ended_at or time.time()
        attempt = self._begin("attempt", steps.asked_at, Context())
        attempt.set_attributes(_attributes(claim, steps, worker))
        if steps.error:
            attempt.set_status(Status(StatusCode.ERROR, redacted(str(steps.error))))
        within = set_span_in_context(attempt, Context())
        for name, begun_at, until in _steps(steps, ended_at):
            span = self._begin(name, begun_at, within)
            if name == "score":
                span.set_attributes({f"shardsift.{phase}_seconds": spent for phase, spent in steps.seconds.items()})
            span.end(_nanoseconds(until))
        attempt.end(_nanoseconds(ended_at))

    def _begin(self, name: str, at: float, context: Context) -> Span:
        return self._tracer.start_span(name, context=context, start_time=_nanoseconds(at))


def _attributes(claim: Claim, steps: Steps, worker: str) -> dict[str, str | int]:
    return {
        "shardsift.run_id": claim.run_id,
        "shardsift.shard": claim.shard.name,
        "shardsift.attempt": claim.attempt,
        "shardsift.worker": worker,
        "shardsift.rows": steps.rows,
        "shardsift.tokens": steps.tokens,
        "shardsift.outcome": steps.outcome,
    }


def _steps(steps: Steps, ended_at: float) -> Iterator[_Step]:
    """The steps that the attempt came to."""
    yield "claim", steps.asked_at, steps.claimed_at
    if steps.worked_until is None:
        return
    stage = steps.seconds.get(Phase.STAGE, 0.0)
    yield "score", steps.claimed_at, steps.worked_until - stage
    if stage:
        yield "stage", steps.worked_until - stage, steps.worked_until
    yield "record", steps.worked_until, ended_at


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


def _resource() -> Resource:
    """The variables OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have the last word."""
    return Resource.create({"service.name": "shardsift-worker"}).merge(OTELResourceDetector().detect())


class _IdOfShard(RandomIdGenerator):
    """The id of a trace follows from run and shard, so attempts of several workers meet in it."""

    def __init__(self) -> None:
        self._trace_id = super().generate_trace_id()

    def of(self, claim: Claim) -> None:
        """The next traces are of this shard."""
        named = hashlib.sha256(f"{claim.run_id}\n{claim.shard.name}".encode()).digest()
        self._trace_id = int.from_bytes(named[:16], "big")

    def generate_trace_id(self) -> int:
        return self._trace_id


class _Exporter(SpanExporter):
    """Says once a minute at most that the collector does not take spans."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._warned_at = -_WARN_SECONDS

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS and time.monotonic() >= self._warned_at + _WARN_SECONDS:
            self._warned_at = time.monotonic()
            logger.warning(
                "The OpenTelemetry collector does not take traces, so they are dropped; scoring goes on. "
                "Check OTEL_EXPORTER_OTLP_ENDPOINT."
            )
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)
