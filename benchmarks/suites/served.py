"""Serving tools to MCP clients, compared with FastMCP and `mcp`: calls and long lists, over stdio and HTTP.

Each library runs its own server, without access logs, on plain asyncio. FastMCP and `mcp` respond with event
streams by default; with `json` they respond with plain JSON, which is their fastest way that still keeps sessions
(but then tools can send no notifications or requests to their client). The tools of all are the same functions.
"""

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import mcp_client
from benchmarks.mcp_client import MODERN, SESSION, Http, Request, Stdio
from benchmarks.processes import HERE, compute_percentile, make_environment
from benchmarks.results import Bench, Figures

SUITE = "served"
CONTENDERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "toolwire": ("serve_toolwire", {}),
    "toolwire uvloop": ("serve_toolwire", {"loop": "uvloop"}),
    "fastmcp": ("serve_fastmcp", {}),
    "fastmcp json": ("serve_fastmcp", {"json": True}),
    "mcp": ("serve_mcp", {}),
    "mcp json": ("serve_mcp", {"json": True}),
}
CALL: Request = (
    "tools/call",
    {"name": "add", "arguments": {"a": 40, "b": 2.5}, "_meta": {"progressToken": 7}},
)
LIST: Request = ("tools/list", {})
MANY = 1_000
CONNECTIONS = 32
_ROUNDS = 4
_FAST = ("toolwire", "toolwire uvloop")
_COUNTS = {"call": (400, 150), "list": (20, 3), "flood": (960, 160)}
"""Requests in one turn: of toolwire, and of the others, which take longer."""


@dataclass
class Server:
    """A running server, and its port."""

    process: "subprocess.Popen[bytes]"
    port: int


@contextlib.contextmanager
def run_servers(carrier: str, tools: int) -> Iterator[dict[str, Server]]:
    """Start the contenders over "http" or "stdio", each in a separate process."""
    with tempfile.TemporaryDirectory(prefix="bench-") as home, contextlib.ExitStack() as stack:
        servers = {}
        for name, (program, more) in CONTENDERS.items():
            if (carrier == "stdio" and more.get("json")) or (tools > 1 and "loop" in more):
                continue
            port = _find_free_port() if carrier == "http" else 0
            case = {"carrier": carrier, "tools": tools, "port": port, **more}
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, str(HERE / f"{program}.py"), json.dumps(case)],
                env=make_environment(Path(home)),
                cwd=home,
                stdin=subprocess.PIPE if carrier == "stdio" else subprocess.DEVNULL,
                stdout=subprocess.PIPE if carrier == "stdio" else subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(_stop, process)
            servers[name] = Server(process, port)
        yield servers


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Close the pipes of a process, and terminate it or, after 5 seconds, kill it."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _find_free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def run(bench: Bench) -> None:
    """Measure calls on servers with one tool and lists on servers with many, and add the targets."""
    for carrier, measure_over in (("http", _measure_over_http), ("stdio", _measure_over_stdio)):
        with run_servers(carrier, 1) as servers:
            measure_over(bench, servers, _measure_calls)
        with run_servers(carrier, MANY) as servers:
            measure_over(bench, servers, _measure_lists)
    for version in (SESSION, MODERN):
        for what, least in (
            (f"tools/list of {MANY:,}", 5.0),
            ("tools/call", 1.5),
        ):
            for rival in ("fastmcp", "fastmcp json"):
                case = f"{what} over HTTP, MCP {version}"
                ours, theirs = (bench.find_row(SUITE, case, "p50", each) for each in ("toolwire", rival))
                bench.add_target(
                    f"{case}, p50: times faster than {rival}",
                    "at least",
                    least,
                    bench.compute_ratios(theirs, ours),
                )


Cases = Callable[[Bench, str, Mapping[str, Any], Mapping[str, Any]], None]
"""Measures calls or lists: `(bench, name of the transport, clients, floods)`, the last two by contender.

A flood is a function that sends many requests at once.
"""


def _measure_over_http(bench: Bench, servers: Mapping[str, Server], cases: Cases) -> None:
    """Measure `cases` over HTTP, with each version of MCP."""
    for version in (SESSION, MODERN):
        with contextlib.ExitStack() as stack:
            enter = stack.enter_context
            one = {name: enter(Http(each.port, version)) for name, each in servers.items()}
            many = {
                name: [enter(Http(each.port, version)) for _ in range(CONNECTIONS)]
                for name, each in servers.items()
            }
            flood = {
                name: lambda requests, own=own: mcp_client.send_at_once(own, requests)
                for name, own in many.items()
            }
            cases(bench, f"over HTTP, MCP {version}", one, flood)


def _measure_over_stdio(bench: Bench, servers: Mapping[str, Server], cases: Cases) -> None:
    """Measure `cases` over stdio."""
    # A connection over stdio keeps the version that it began with. Measured is the one that all clients support.
    one = {name: Stdio(each.process.stdin, each.process.stdout, SESSION) for name, each in servers.items()}  # type: ignore[arg-type]
    flood = {
        name: lambda requests, own=own: own.send_at_once(requests, CONNECTIONS) for name, own in one.items()
    }
    cases(bench, f"over stdio, MCP {SESSION}", one, flood)


def _choose_count(bench: Bench, kind: str, name: str) -> int:
    """Return the number of requests in one turn of a contender."""
    return bench.scale(_COUNTS[kind][name not in _FAST])


def _measure_calls(bench: Bench, where: str, one: Mapping[str, Any], flood: Mapping[str, Any]) -> None:
    """Measure calls of a tool: one at a time, and many at once."""

    def time_calls(name: str, client: Any) -> Figures:
        count = _choose_count(bench, "call", name)
        done = client.send_each([CALL] * count)
        mcp_client.check(done.replies, count, "42.5")
        return {
            "p50": compute_percentile(done.times, 0.5) / 1e3,
            "p99": compute_percentile(done.times, 0.99) / 1e3,
        }

    def measure_throughput(name: str, send_at_once: Any) -> Figures:
        many = max(_choose_count(bench, "flood", name), CONNECTIONS)
        done = send_at_once([CALL] * many)
        mcp_client.check(done.replies, many, "42.5")
        return {"throughput": many / done.took}

    for client in one.values():
        client.send_each([CALL] * 20)
    turns = {name: partial(time_calls, name, client) for name, client in one.items()}
    bench.compare(SUITE, f"tools/call {where}", turns, {"p50": "µs", "p99": "µs"}, rounds=_ROUNDS)
    turns = {name: partial(measure_throughput, name, own) for name, own in flood.items()}
    case = f"tools/call {where}, {CONNECTIONS} at once"
    bench.compare(SUITE, case, turns, {"throughput": "calls/s"}, rounds=_ROUNDS)


def _measure_lists(bench: Bench, where: str, one: Mapping[str, Any], flood: Mapping[str, Any]) -> None:
    """Measure `tools/list`, one request at a time."""
    del flood

    def time_lists(name: str, client: Any) -> Figures:
        count = _choose_count(bench, "list", name)
        done = client.send_each([LIST] * count)
        mcp_client.check(done.replies, count, f'"look_up_{MANY - 2}"')
        return {"p50": compute_percentile(done.times, 0.5) / 1e3}

    for client in one.values():
        client.send_each([LIST])
    turns = {name: partial(time_lists, name, client) for name, client in one.items()}
    bench.compare(SUITE, f"tools/list of {MANY:,} {where}", turns, {"p50": "µs"}, rounds=_ROUNDS)
