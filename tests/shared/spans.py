"""Spans that a test makes, by an OpenTelemetry SDK that is set up once for the process, as it wants it."""

from functools import cache

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


@cache
def exporter():
    """The exporter that gets every span of the process, from the first call on."""
    made = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    trace.set_tracer_provider(provider)
    return made
