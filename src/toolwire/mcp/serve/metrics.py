"""Counts and times of what a server does, for Prometheus.

Owns the names of the metrics. Labels are only names that the server itself has, so that no client can make up new
ones without end: where nobody can tell (a server of another library), those that it has listed or answered. With
several worker processes (`PROMETHEUS_MULTIPROC_DIR` set, as `toolwire serve` does) one scrape tells of all of them.
"""

import os
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final, Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
_LEARNT: Final = 1_000  # names at most that are believed to a server that cannot be asked
_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """The metrics of one served thing.

    `knows(tool)` says whether a name may become a label. One that knows even the empty name cannot tell.
    """

    def __init__(
        self, knows: Callable[[str], bool], more: Callable[[], CollectorRegistry | None] = lambda: None
    ) -> None:
        """`more` gives the registry of what the server itself counts, if it does."""
        self._knows = knows
        self._more = more
        self._learnt: set[str] = set()
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

    def observe(self, method: str, name: str) -> "_Observed":
        """Something to hold around one request."""
        return _Observed(self, method, name if method == "tools/call" else "")

    def began(self) -> None:
        """A request came."""
        self._running.inc()

    def ended(self, method: str, tool: str, outcome: str, seconds: float) -> None:
        """A request was answered."""
        self._running.dec()
        self._requests.labels(method, outcome).inc()
        if method == "tools/call":
            if outcome == "ok":
                self.learn([tool])
            tool = tool if self._may_name(tool) else ""
            self._calls.labels(tool, outcome).inc()
            self._seconds.labels(tool).observe(seconds)

    def learn(self, tools: Iterable[str]) -> None:
        """The server has these."""
        for tool in tools:
            if len(self._learnt) < _LEARNT:
                self._learnt.add(tool)

    def _may_name(self, tool: str) -> bool:
        return tool in self._learnt if self._knows("") else self._knows(tool)

    def text(self) -> bytes:
        """All of it as Prometheus reads it."""
        if not os.environ.get(FOLDER):
            more = self._more()
            return generate_latest(self._registry) + (b"" if more is None else generate_latest(more))
        everyone = CollectorRegistry()
        MultiProcessCollector(everyone)  # type: ignore[no-untyped-call]
        return generate_latest(everyone)


class _Observed:
    """One request: how long it took and what it came to."""

    def __init__(self, metrics: Metrics, method: str, tool: str) -> None:
        self._metrics = metrics
        self._method = method
        self._tool = tool
        self._outcome = "ok"
        self._since = 0.0

    def result(self, result: dict[str, Any]) -> None:
        """What came out."""
        if self._method == "tools/list":
            self._metrics.learn(str(tool.get("name")) for tool in result.get("tools", ()))
        if result.get("isError"):
            self._outcome = "error"
        elif result.get("resultType") == "input_required":
            self._outcome = "input_required"

    def __enter__(self) -> Self:
        self._since = time.perf_counter()
        self._metrics.began()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._outcome = "refused" if isinstance(error, Exception) else "cancelled"
        self._metrics.ended(self._method, self._tool, self._outcome, time.perf_counter() - self._since)
