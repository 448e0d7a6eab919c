"""What we serve to other MCP clients, against FastMCP and plain `mcp`: calls and long lists, over stdio and HTTP.

Each library runs by its own means, without access logs, on plain asyncio. FastMCP and `mcp` answer as event streams
unless told otherwise; with `json` they answer as plain JSON, which is their fastest way that still keeps sessions
(but then tools can neither tell nor ask their client anything). The tools of all are the same functions.
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
from benchmarks.mcp_client import MODERN, SESSION, Asked, Http, Stdio
from benchmarks.processes import HERE, environment, percentile
from benchmarks.results import Bench, Measured

SUITE = "served"
CONTENDERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "toolwire": ("serve_toolwire", {}),
    "toolwire uvloop": ("serve_toolwire", {"loop": "uvloop"}),
    "fastmcp": ("serve_fastmcp", {}),
    "fastmcp json": ("serve_fastmcp", {"json": True}),
    "mcp": ("serve_mcp", {}),
    "mcp json": ("serve_mcp", {"json": True}),
}
CALL: Asked = ("tools/call", {"name": "add", "arguments": {"a": 40, "b": 2.5}, "_meta": {"progressToken": 7}})
LIST: Asked = ("tools/list", {})
MANY = 1_000
CONNECTIONS = 32
_ROUNDS = 4
_FAST = ("toolwire", "toolwire uvloop")
_COUNTS = {"call": (400, 150), "list": (20, 3), "flood": (960, 160)}
"""Requests in one turn: of ours, and of the others, which take longer."""


@dataclass
class Server:
    """One that runs, and where."""

    process: "subprocess.Popen[bytes]"
    port: int


@contextlib.contextmanager
def running(carrier: str, tools: int) -> Iterator[dict[str, Server]]:
    """The contenders of a carrier, each in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-") as home, contextlib.ExitStack() as stack:
        servers = {}
        for name, (program, more) in CONTENDERS.items():
            if (carrier == "stdio" and more.get("json")) or (tools > 1 and "loop" in more):
                continue
            port = _free_port() if carrier == "http" else 0
            case = {"carrier": carrier, "tools": tools, "port": port, **more}
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, str(HERE / f"{program}.py"), json.dumps(case)],
                env=environment(Path(home)),
                cwd=home,
                stdin=subprocess.PIPE if carrier == "stdio" else subprocess.DEVNULL,
                stdout=subprocess.PIPE if carrier == "stdio" else subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(_ended, process)
            servers[name] = Server(process, port)
        yield servers


def _ended(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def run(bench: Bench) -> None:
    """Calls on a server with one tool, lists on one with many; then the targets."""
    for carrier, talks in (("http", _over_http), ("stdio", _over_stdio)):
        with running(carrier, 1) as servers:
            talks(bench, servers, _calls)
        with running(carrier, MANY) as servers:
            talks(bench, servers, _lists)
    for version in (SESSION, MODERN):
        for what, least in (
            (f"tools/list of {MANY:,}", 5.0),
            ("tools/call", 1.5),
        ):
            for rival in ("fastmcp", "fastmcp json"):
                case = f"{what} over HTTP, MCP {version}"
                ours, theirs = (bench.row(SUITE, case, "p50", each) for each in ("toolwire", rival))
                bench.target(
                    f"{case}, p50: times faster than {rival}", "at least", least, bench.ratios(theirs, ours)
                )


Cases = Callable[[Bench, str, Mapping[str, Any], Mapping[str, Any]], None]
"""Measures `(bench, what it is called, clients by contender, more of them for many at once)`."""


def _over_http(bench: Bench, servers: Mapping[str, Server], cases: Cases) -> None:
    for version in (SESSION, MODERN):
        with contextlib.ExitStack() as stack:
            enter = stack.enter_context
            one = {name: enter(Http(each.port, version)) for name, each in servers.items()}
            many = {
                name: [enter(Http(each.port, version)) for _ in range(CONNECTIONS)]
                for name, each in servers.items()
            }
            flood = {
                name: lambda asked, own=own: mcp_client.flooded(own, asked) for name, own in many.items()
            }
            cases(bench, f"over HTTP, MCP {version}", one, flood)


def _over_stdio(bench: Bench, servers: Mapping[str, Server], cases: Cases) -> None:
    # A connection over stdio keeps to the version that it began with: one is measured, which all clients speak.
    one = {name: Stdio(each.process.stdin, each.process.stdout, SESSION) for name, each in servers.items()}  # type: ignore[arg-type]
    flood = {name: lambda asked, own=own: own.flooded(asked, CONNECTIONS) for name, own in one.items()}
    cases(bench, f"over stdio, MCP {SESSION}", one, flood)


def _count(bench: Bench, kind: str, name: str) -> int:
    """Requests of one turn."""
    return bench.count(_COUNTS[kind][name not in _FAST])


def _calls(bench: Bench, where: str, one: Mapping[str, Any], flood: Mapping[str, Any]) -> None:
    def alone(name: str, client: Any) -> Measured:
        count = _count(bench, "call", name)
        done = client.timed([CALL] * count)
        mcp_client.check(done.replies, count, "42.5")
        return {"p50": percentile(done.times, 0.5) / 1e3, "p99": percentile(done.times, 0.99) / 1e3}

    def together(name: str, flooded: Any) -> Measured:
        many = max(_count(bench, "flood", name), CONNECTIONS)
        done = flooded([CALL] * many)
        mcp_client.check(done.replies, many, "42.5")
        return {"throughput": many / done.took}

    for client in one.values():
        client.timed([CALL] * 20)
    turns = {name: partial(alone, name, client) for name, client in one.items()}
    bench.compare(SUITE, f"tools/call {where}", turns, {"p50": "µs", "p99": "µs"}, rounds=_ROUNDS)
    turns = {name: partial(together, name, own) for name, own in flood.items()}
    case = f"tools/call {where}, {CONNECTIONS} at once"
    bench.compare(SUITE, case, turns, {"throughput": "calls/s"}, rounds=_ROUNDS)


def _lists(bench: Bench, where: str, one: Mapping[str, Any], flood: Mapping[str, Any]) -> None:
    del flood

    def listing(name: str, client: Any) -> Measured:
        count = _count(bench, "list", name)
        done = client.timed([LIST] * count)
        mcp_client.check(done.replies, count, f'"look_up_{MANY - 2}"')
        return {"p50": percentile(done.times, 0.5) / 1e3}

    for client in one.values():
        client.timed([LIST])
    turns = {name: partial(listing, name, client) for name, client in one.items()}
    bench.compare(SUITE, f"tools/list of {MANY:,} {where}", turns, {"p50": "µs"}, rounds=_ROUNDS)
