"""Counts and measures the requests of a server, for Prometheus and for the log (`toolwire.requests`, level INFO).

Owns the names of the metrics. Only tools that the server has are used as labels, so that a client cannot create any
number of labels; for a server of another library, these are the tools that it has listed or answered. With
several worker processes (`PROMETHEUS_MULTIPROC_DIR` is set, as by `toolwire serve`) one scrape covers all of them.
"""

import logging
import os
import time
from collections.abc import Callable, Container, Iterable
from types import TracebackType
from typing import Any, Final, Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from toolwire._support.log import logger_for
from toolwire._support.words import plain_line

logger = logger_for("requests")

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
_LONGEST_NAME: Final = 200  # characters of a client's text in a line of the log
_MAX_SEEN: Final = 1_000  # tool names that are remembered for a server of another library
_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """The metrics of one served server."""

    def __init__(
        self,
        known_tools: Callable[[], Container[str] | None],
        more: Callable[[], CollectorRegistry | None] = lambda: None,
    ) -> None:
        """`known_tools` returns the names of the server's tools, None if they are unknown. `more` returns the
        registry of the server's own metrics, if it has any."""
        self._known_tools = known_tools
        self._more = more
        self._seen_tools: set[str] = set()
        self._registry = CollectorRegistry()
        add: dict[str, Any] = {"registry": self._registry}
        self._requests = Counter(
            "toolwire_requests_total", "Requests answered.", ["method", "outcome"], **add
        )
        self._calls = Counter("toolwire_tool_calls_total", "Tool calls answered.", ["tool", "outcome"], **add)
        self._seconds = Histogram(
            "toolwire_tool_call_seconds", "How long tool calls took.", ["tool"], buckets=_BUCKETS, **add
        )
        self._running = Gauge(
            "toolwire_requests_running", "Requests being answered.", multiprocess_mode="livesum", **add
        )

    def observe(self, method: str, name: str) -> "RequestTimer":
        """Return a context manager to use around one request."""
        return RequestTimer(method, name, self)

    def start(self) -> None:
        """Count a request that starts."""
        self._running.inc()

    def finish(self, method: str, tool: str, outcome: str, seconds: float) -> None:
        """Count a request that was answered."""
        self._running.dec()
        self._requests.labels(method, outcome).inc()
        if method == "tools/call":
            known = self._known_tools()
            if known is None:
                if outcome == "ok":
                    self.add_tools([tool])
                known = self._seen_tools
            tool = tool if tool in known else ""
            self._calls.labels(tool, outcome).inc()
            self._seconds.labels(tool).observe(seconds)

    def add_tools(self, tools: Iterable[str]) -> None:
        """Add names of tools that a server of another library has."""
        for tool in tools:
            if len(self._seen_tools) < _MAX_SEEN:
                self._seen_tools.add(tool)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        if not os.environ.get(FOLDER):
            more = self._more()
            return generate_latest(self._registry) + (b"" if more is None else generate_latest(more))
        all_workers = CollectorRegistry()
        MultiProcessCollector(all_workers)  # type: ignore[no-untyped-call]
        return generate_latest(all_workers)


class RequestTimer:
    """Measures one request, for the log and, if given, the metrics."""

    def __init__(self, method: str, name: str, metrics: Metrics | None = None) -> None:
        self._metrics = metrics
        self._method = method
        self._name = name
        self._outcome = "ok"
        self._since = 0.0

    def result(self, result: dict[str, Any]) -> None:
        """Record the result."""
        if self._method == "tools/list" and self._metrics is not None:
            self._metrics.add_tools(str(tool.get("name")) for tool in result.get("tools", ()))
        if result.get("isError"):
            self._outcome = "error"
        elif result.get("resultType") == "input_required":
            self._outcome = "input_required"

    def __enter__(self) -> Self:
        self._since = time.perf_counter()
        if self._metrics is not None:
            self._metrics.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._outcome = "refused" if isinstance(error, Exception) else "cancelled"
        seconds = time.perf_counter() - self._since
        if logger.isEnabledFor(logging.INFO):
            name = f" {plain_line(self._name)[:_LONGEST_NAME]}" if self._name else ""
            logger.info("%s%s: %s in %.1f ms", plain_line(self._method), name, self._outcome, seconds * 1000)
        if self._metrics is not None:
            tool = self._name if self._method == "tools/call" else ""
            self._metrics.finish(self._method, tool, self._outcome, seconds)
