"""Counts and measures the requests of a server, for Prometheus and for the log (`toolwire.requests`, level INFO).

Owns the names of the metrics. Only tools that the server has are used as labels, so that a client cannot create any
number of labels; for a server of another library, these are the tools that it has listed or answered. With
several worker processes (`PROMETHEUS_MULTIPROC_DIR` is set, as by `toolwire serve`) one scrape covers all of them.
"""

import logging
import os
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from toolwire._support.log import logger_for
from toolwire._support.words import plain_line
from toolwire.mcp.serve.host import Outcome, RequestObserver, ServerHost
from toolwire.tools.toolset import Toolset

logger = logger_for("requests")

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
_LONGEST_NAME: Final = 200  # characters of a client's text in a line of the log
_MAX_SEEN: Final = 1_000  # tool names that are remembered for a server of another library
_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class RequestLog(RequestObserver):
    """Logs each request."""

    def finish(self, method: str, name: str, outcome: Outcome, seconds: float) -> None:
        if logger.isEnabledFor(logging.INFO):
            shown = f" {plain_line(name)[:_LONGEST_NAME]}" if name else ""
            logger.info("%s%s: %s in %.1f ms", plain_line(method), shown, _describe(outcome), seconds * 1000)


class Metrics(RequestLog):
    """The metrics of one served server. Logs each request too."""

    def __init__(self, host: ServerHost) -> None:
        self._host = host
        self._seen_tools: set[str] = set()  # of a server of another library
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

    def start(self) -> None:
        self._running.inc()

    def finish(self, method: str, name: str, outcome: Outcome, seconds: float) -> None:
        super().finish(method, name, outcome, seconds)
        described, server = _describe(outcome), self._host.server
        self._running.dec()
        self._requests.labels(method, described).inc()
        if isinstance(server, Toolset):
            known: Container[str] = server.tools
        else:
            self._remember_tools(method, name, outcome)
            known = self._seen_tools
        if method == "tools/call":
            tool = name if name in known else ""
            self._calls.labels(tool, described).inc()
            self._seconds.labels(tool).observe(seconds)

    def _remember_tools(self, method: str, name: str, outcome: Outcome) -> None:
        """Remember the tools that a server of another library has listed, or called without an error."""
        names: Iterable[str] = ()
        if method == "tools/list" and isinstance(outcome, Mapping):
            names = (str(tool.get("name")) for tool in outcome.get("tools", ()))
        elif method == "tools/call" and _describe(outcome) == "ok":
            names = (name,)
        for each in names:
            if len(self._seen_tools) < _MAX_SEEN:
                self._seen_tools.add(each)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        if not os.environ.get(FOLDER):
            more = getattr(self._host.server, "metrics_registry", None)  # the server's own metrics
            return generate_latest(self._registry) + (b"" if more is None else generate_latest(more))
        all_workers = CollectorRegistry()
        MultiProcessCollector(all_workers)  # type: ignore[no-untyped-call]
        return generate_latest(all_workers)


def _describe(outcome: Outcome) -> str:
    """Describe how a request ended, in one word."""
    if isinstance(outcome, BaseException):
        return "refused" if isinstance(outcome, Exception) else "cancelled"
    if outcome.get("isError"):
        return "error"
    return "input_required" if outcome.get("resultType") == "input_required" else "ok"
