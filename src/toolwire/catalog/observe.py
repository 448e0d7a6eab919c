"""Observes the calls of a catalogue: metrics for Prometheus and OpenTelemetry, spans, a log, an audit file.

Every paid call is one line of JSON in the audit file: what was bought, its cost, and its outcome. None of it
contains arguments or secrets: arguments are represented by their digest. OpenTelemetry does nothing unless the
program has set it up, and spans are created only if they were requested (`_support.tracing`).
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from opentelemetry import metrics as otel_metrics
from opentelemetry import trace
from prometheus_client import CollectorRegistry, Counter, Histogram

from toolwire._support.files import append_line, open_for_lines
from toolwire._support.log import logger_for
from toolwire._support.tracing import is_tracing_wanted
from toolwire.catalog.money import PER_DOLLAR
from toolwire.errors import CatalogError

logger = logger_for("catalog")

_BUCKETS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_NO_TRACER: Final = trace.NoOpTracer()


@dataclass
class CallRecord:
    """A call, for the log and the metrics. `outcome`: bought, failed, released, unknown, refused or cached."""

    tool: str
    outcome: str = ""
    booking: str = ""
    entry: str = ""
    digest: str = ""
    reserved: int = 0
    cost: int = 0
    balance: int | None = None
    seconds: float = 0.0
    api_seconds: float = 0.0
    """The part of `seconds` that the API took, from sending the order, retries included."""
    note: str = ""
    """A remark, such as a balance that does not match the cost."""


class Observer:
    """Records the calls of one catalogue. `registry` holds the Prometheus metrics."""

    def __init__(
        self, catalog: str, session: str, audit: Path | None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.registry = CollectorRegistry()
        self._catalog = catalog
        self._session = session
        self._clock = clock
        self._audit = audit
        if audit is not None:
            _check_writable(audit)
        labels = ["catalog", "tool", "outcome"]
        add: dict[str, Any] = {"registry": self.registry}
        self._calls = Counter("toolwire_catalog_calls_total", "Calls of catalogue tools.", labels, **add)
        self._cost = Counter(
            "toolwire_catalog_cost_dollars_total", "Money spent.", ["catalog", "tool"], **add
        )
        self._seconds = Histogram(
            "toolwire_catalog_call_seconds",
            "How long calls of catalogue tools took.",
            ["catalog", "tool"],
            buckets=_BUCKETS,
            **add,
        )
        self._api = Histogram(
            "toolwire_catalog_api_seconds",
            "How long the API took for them.",
            ["catalog", "tool"],
            buckets=_BUCKETS,
            **add,
        )
        meter = otel_metrics.get_meter("toolwire.catalog")
        self._otel_calls = meter.create_counter(
            "toolwire.catalog.calls", "{call}", "Calls of catalogue tools"
        )
        self._otel_cost = meter.create_counter("toolwire.catalog.cost", "USD", "Money spent")
        self._otel_seconds = meter.create_histogram(
            "toolwire.catalog.call.duration", "s", "Duration of calls"
        )
        self._tracer = trace.get_tracer("toolwire.catalog")

    @contextmanager
    def call(self, tool: str) -> Iterator[CallRecord]:
        """Record a call: yield the record to fill in, and count, log and trace it at the end."""
        record = CallRecord(tool)
        since = time.perf_counter()
        tracer = self._tracer if is_tracing_wanted() else _NO_TRACER
        # The text of an exception may contain arguments or secrets, so it is not part of the span.
        with tracer.start_as_current_span(
            f"catalog.call {tool}", record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield record
            finally:
                record.seconds = time.perf_counter() - since
                record.outcome = record.outcome or "cancelled"
                span.set_attributes(
                    {
                        "toolwire.catalog": self._catalog,
                        "gen_ai.tool.name": tool,
                        "toolwire.outcome": record.outcome,
                        "toolwire.cost_usd": record.cost / PER_DOLLAR,
                    }
                )
                if record.outcome not in ("bought", "cached"):
                    span.set_status(trace.StatusCode.ERROR, record.outcome)
                self._count(record)

    def _count(self, record: CallRecord) -> None:
        names = {"catalog": self._catalog, "tool": record.tool}
        labels = self._catalog, record.tool  # positional: labels by name take three times as long
        self._calls.labels(*labels, record.outcome).inc()
        self._seconds.labels(*labels).observe(record.seconds)
        if record.api_seconds:
            self._api.labels(*labels).observe(record.api_seconds)
        self._otel_calls.add(1, {**names, "outcome": record.outcome})
        self._otel_seconds.record(record.seconds, names)
        if record.cost:
            self._cost.labels(*labels).inc(record.cost / PER_DOLLAR)
            self._otel_cost.add(record.cost / PER_DOLLAR, names)
        line = {"catalog": self._catalog, "session": self._session, **vars(record)}
        if not record.note:
            del line["note"]
        logger.info("catalogue call %s: %s", record.tool, record.outcome, extra={"toolwire": line})
        if self._audit is not None and record.booking:
            try:
                text = json.dumps({"at": self._clock(), **line}, separators=(",", ":"))
                append_line(self._audit, text.encode())
            except OSError as error:
                # The ledger has booked the money: a missing line must not cost the model its result.
                logger.warning("the audit file %s cannot be written: %s", self._audit, error.strerror)


def _check_writable(audit: Path) -> None:
    """Create the audit file if it does not exist. CatalogError if it cannot be written."""
    try:
        audit.parent.mkdir(parents=True, exist_ok=True)
        os.close(open_for_lines(audit))
    except OSError as error:
        raise CatalogError(f"the audit file {audit} cannot be written: {error.strerror}") from error
