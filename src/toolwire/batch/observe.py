"""Observes a batch: metrics for Prometheus and OpenTelemetry, and a span for each run and each batch.

The span of a run is the parent of its conversation's span, if tracing is on. No metric or span contains prompts,
items or outputs. The key of a run is an attribute of its span but never a metric label, since keys are unbounded.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry import metrics as otel_metrics
from opentelemetry import trace
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from toolwire._support.tracing import is_tracing_wanted
from toolwire.batch.states import STATES, Claim, Outcome, Progress, to_dollars

_BUCKETS: Final = (1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 10800.0)
_NO_TRACER: Final = trace.NoOpTracer()


@dataclass
class ObservedRun:
    """A run under observation. The caller sets `outcome` when the run has ended."""

    outcome: Outcome | None = None


class Observer:
    """Observes one batch in one process. `registry` holds the Prometheus metrics."""

    def __init__(self, batch: str) -> None:
        self.registry = CollectorRegistry()
        self._batch = batch
        add: dict[str, Any] = {"registry": self.registry}
        self._runs = Counter(
            "toolwire_batch_runs_total",
            "Attempts of runs that ended in this process.",
            ["batch", "outcome"],
            **add,
        )
        self._cost = Counter(
            "toolwire_batch_cost_dollars_total", "Money spent by this process.", ["batch"], **add
        )
        self._seconds = Histogram(
            "toolwire_batch_run_seconds", "How long attempts took.", ["batch"], buckets=_BUCKETS, **add
        )
        self._running = Gauge("toolwire_batch_running", "Runs in progress in this process.", ["batch"], **add)
        self._by_state = Gauge(
            "toolwire_batch_state_runs", "Runs of the whole batch by state.", ["batch", "state"], **add
        )
        self._spent = Gauge(
            "toolwire_batch_spent_dollars", "Money spent by the whole batch.", ["batch"], **add
        )
        self._reserved = Gauge(
            "toolwire_batch_reserved_dollars", "Money reserved by the batch.", ["batch"], **add
        )
        meter = otel_metrics.get_meter("toolwire.batch")
        self._otel_runs = meter.create_counter("toolwire.batch.runs", "{run}", "Attempts of runs that ended")
        self._otel_cost = meter.create_counter("toolwire.batch.cost", "USD", "Money spent")
        self._otel_seconds = meter.create_histogram(
            "toolwire.batch.run.duration", "s", "Duration of attempts"
        )
        self._tracer: trace.Tracer = _NO_TRACER
        self._span: trace.Span = trace.INVALID_SPAN

    def start(self) -> None:
        """Start the span of the open batch, the parent of the spans of its runs."""
        self._tracer = trace.get_tracer("toolwire.batch") if is_tracing_wanted() else _NO_TRACER
        self._span = self._tracer.start_span("batch", attributes={"toolwire.batch": self._batch})

    def end(self) -> None:
        """End the span of the batch."""
        self._span.end()

    @contextmanager
    def run(self, claim: Claim) -> Iterator[ObservedRun]:
        """Count, measure and trace one attempt."""
        seen = ObservedRun()
        since = time.perf_counter()
        self._running.labels(self._batch).inc()
        with self._tracer.start_as_current_span(
            "batch.run",
            context=trace.set_span_in_context(self._span),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield seen
            finally:
                self._running.labels(self._batch).dec()
                state = "error" if seen.outcome is None else seen.outcome.state
                cost = 0.0 if seen.outcome is None else float(to_dollars(seen.outcome.cost or 0))
                span.set_attributes(
                    {
                        "toolwire.batch": self._batch,
                        "toolwire.batch.key": claim.key,
                        "toolwire.batch.attempt": claim.attempt,
                        "toolwire.outcome": state,
                        "toolwire.cost_usd": cost,
                    }
                )
                if state != "done":
                    span.set_status(trace.StatusCode.ERROR, state)
                self._count(state, cost, time.perf_counter() - since)

    def _count(self, state: str, cost: float, seconds: float) -> None:
        self._runs.labels(self._batch, state).inc()
        self._seconds.labels(self._batch).observe(seconds)
        self._otel_runs.add(1, {"batch": self._batch, "outcome": state})
        self._otel_seconds.record(seconds, {"batch": self._batch})
        if cost:
            self._cost.labels(self._batch).inc(cost)
            self._otel_cost.add(cost, {"batch": self._batch})

    def progress(self, progress: Progress) -> None:
        """Set the gauges that show the progress of the whole batch."""
        for state in STATES:
            self._by_state.labels(self._batch, state).set(getattr(progress, state))
        self._spent.labels(self._batch).set(float(progress.spent))
        self._reserved.labels(self._batch).set(float(progress.reserved))
