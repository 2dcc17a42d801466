"""Send traces and metrics to an OpenTelemetry collector, if the environment names one.

The OpenTelemetry specification defines the variables. The SDK is an optional package, imported only if needed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ... import __version__
from ...values.errors import DependencyMissing

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
SIGNAL_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
DISABLED = "OTEL_SDK_DISABLED"
TIMEOUT = "OTEL_EXPORTER_OTLP_TIMEOUT"
TIMEOUT_SECONDS = 2.0
"""The time limit for a collector's answer, unless the environment sets one. A process may wait this long at exit."""


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """The OpenTelemetry providers that send traces and metrics to the collector."""

    tracers: TracerProvider
    meters: MeterProvider


def is_telemetry_on(environ: Mapping[str, str]) -> bool:
    """Return whether the environment names a collector."""
    if environ.get(DISABLED, "").strip().lower() == "true":
        return False
    return any(environ.get(name) for name in (ENDPOINT, *SIGNAL_ENDPOINTS))


@contextmanager
def open_telemetry(environ: Mapping[str, str]) -> Iterator[Telemetry]:
    """Send traces and metrics to the collector that the environment names, until the block ends.

    Raise DependencyMissing if the SDK is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise DependencyMissing(
            f"{ENDPOINT} is set, but the package {error.name} is missing; install podium[otel] or unset the variable"
        ) from error
    resource = Resource.create(
        {"service.name": environ.get("OTEL_SERVICE_NAME", "podium"), "service.version": __version__}
    )
    timeout = None if environ.get(TIMEOUT) else TIMEOUT_SECONDS
    # Otherwise, the SDK would log each failed attempt in the middle of a command's output.
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=timeout)))
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(timeout=timeout))
    meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    try:
        yield Telemetry(tracers=tracers, meters=meters)
    finally:
        tracers.shutdown()
        meters.shutdown()
