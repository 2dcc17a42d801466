"""A collector for OpenTelemetry on loopback, which can also fail, or keep its clients waiting."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Collector:
    """What a collector has received, and how it answers: with `statuses` first, and then with 200."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    """The statuses of its answers."""
    open: threading.Event = field(default_factory=threading.Event)
    """While this is not set, no request gets an answer."""
    received: list[tuple[str, bytes]] = field(default_factory=list)
    """The paths and bodies of the requests that it accepted."""
    asked: threading.Event = field(default_factory=threading.Event)
    """Whether a request has arrived."""

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for path, body in self.received
            if path == "/v1/traces"
            for one in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in one.scope_spans
            for span in scope.spans
        ]

    @property
    def named_spans(self) -> dict[str, Span]:
        return {span.name: span for span in self.spans}

    @property
    def metrics(self) -> set[str]:
        """The names of all metrics."""
        return {
            metric.name
            for path, body in self.received
            if path == "/v1/metrics"
            for one in ExportMetricsServiceRequest.FromString(body).resource_metrics
            for scope in one.scope_metrics
            for metric in scope.metrics
        }


@contextmanager
def run_collector(*statuses: int, is_open: bool = True) -> Iterator[Collector]:
    """Run a collector until the block ends. If it is not open, its clients wait until `open` is set."""
    collector = Collector(statuses=list(statuses))
    if is_open:
        collector.open.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.asked.set()
            collector.open.wait()
            status = collector.statuses.pop(0) if collector.statuses else 200
            if status == 200:
                collector.received.append((self.path, body))
            collector.answered.append(status)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Say nothing about a client that no longer waits for its answer."""

    with Server(("127.0.0.1", 0), Handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield collector
        finally:
            collector.open.set()
            server.shutdown()
            thread.join()
