"""An OpenTelemetry collector that keeps what it gets: OTLP over HTTP, decoded by OpenTelemetry's own protobuf classes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True, kw_only=True)
class ReceivedSpan:
    service: str
    trace_id: str
    span_id: str
    parent_id: str  # empty for the first of a trace
    name: str
    begun_at: float  # Unix seconds
    ended_at: float
    attributes: dict[str, Any]
    error: str  # empty if it did not fail

    @property
    def seconds(self) -> float:
        return self.ended_at - self.begun_at


@dataclass(kw_only=True)
class Collector:
    port: int = 0
    spans: list[ReceivedSpan] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that sends its traces here."""
        return {"SHARDSIFT_TRACES": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.port}"}

    def named(self, name: str) -> list[ReceivedSpan]:
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.begun_at)

    def within(self, parent: ReceivedSpan) -> dict[str, ReceivedSpan]:
        return {span.name: span for span in self.spans if span.parent_id == parent.span_id}


@contextmanager
def collector() -> Iterator[Collector]:
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            found.spans += _decoded(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()
            self.wfile.write(ExportTraceServiceResponse().SerializeToString())

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.port = server.server_port
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


def _decoded(body: bytes) -> Iterator[ReceivedSpan]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = _values(resource.resource.attributes)["service.name"]
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            yield ReceivedSpan(
                service=service,
                trace_id=span.trace_id.hex(),
                span_id=span.span_id.hex(),
                parent_id=span.parent_span_id.hex(),
                name=span.name,
                begun_at=span.start_time_unix_nano / 1e9,
                ended_at=span.end_time_unix_nano / 1e9,
                attributes=_values(span.attributes),
                error=span.status.message if span.status.code == span.status.STATUS_CODE_ERROR else "",
            )


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
