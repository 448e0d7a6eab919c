"""Measurements of tests, from an OpenTelemetry SDK that is set up once for the process."""

from functools import cache

from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader


@cache
def reader():
    """Set up the SDK at the first call, and return the reader that gets every measurement from then on."""
    made = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([made]))
    return made


def points(name):
    """Return the data points of an instrument so far, by their attributes."""
    data = reader().get_metrics_data()
    found = (
        []
        if data is None
        else [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]
    )
    return {tuple(sorted(point.attributes.items())): point for point in found}
