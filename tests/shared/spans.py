"""Spans of tests, from an OpenTelemetry SDK that is set up once for the process."""

from functools import cache

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


@cache
def exporter():
    """Set up the SDK at the first call, and return the exporter that gets every span from then on."""
    made = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    trace.set_tracer_provider(provider)
    return made
