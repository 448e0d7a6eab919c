"""How long a served call takes while thousands of silent connections press on a server with few descriptors.

The server may have 256 descriptors. Its clients either keep their connections or open one for each call. The silent
connections come back whenever the server closes one of them.
"""

import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import mcp_client
from benchmarks.mcp_client import MODERN, Http
from benchmarks.processes import HERE, environment, percentile
from benchmarks.results import Bench, Measured
from benchmarks.suites.served import CALL, _ended, _free_port

SUITE = "starvation"
IDLERS = 5_000
DESCRIPTORS = 256
_KEPT = 8
_CALLS = 400
_LOOPS = {"toolwire": {}, "toolwire uvloop": {"loop": "uvloop"}}
_UNITS = {"p50": "ms", "p99": "ms", "lost": ""}


def run(bench: Bench) -> None:
    """Calls in peace, and under 5,000 silent connections."""
    turns = {name: (lambda more=more: _measured(bench.count(_CALLS), more)) for name, more in _LOOPS.items()}
    bench.compare_cases(SUITE, f"{IDLERS:,} idle connections", turns, _UNITS, rounds=3)


def _measured(calls: int, more: dict[str, str]) -> dict[str, Measured]:
    with tempfile.TemporaryDirectory(prefix="bench-") as home, _server(Path(home), more) as port:
        with contextlib.ExitStack() as stack:
            kept = [stack.enter_context(Http(port, MODERN)) for _ in range(_KEPT)]
            figures = {
                "kept connections, in peace": _kept(kept, calls),
                "new connections, in peace": _new(port, calls),
            }
            with _idlers(port):
                figures |= {
                    f"kept connections, {IDLERS:,} silent ones": _kept(kept, calls),
                    f"new connections, {IDLERS:,} silent ones": _new(port, calls),
                }
        return figures


def _kept(clients: list[Http], calls: int) -> Measured:
    times: list[float] = []
    for number in range(calls):
        done = clients[number % len(clients)].timed([CALL])
        mcp_client.check(done.replies, 1, "42.5")
        times += done.times
    return _figures(times, 0)


def _new(port: int, calls: int) -> Measured:
    times: list[float] = []
    lost = 0
    for _ in range(calls):
        begun = time.perf_counter_ns()
        try:
            with Http(port, MODERN) as client:
                done = client.timed([CALL])
        except (
            OSError,
            EOFError,
        ):  # it was taken for a silent one: the server saw 192 newer connections first
            lost += 1
            continue
        times.append(time.perf_counter_ns() - begun)
        mcp_client.check(done.replies, 1, "42.5")
    return _figures(times, lost)


def _figures(times: list[float], lost: int) -> Measured:
    return {"p50": percentile(times, 0.5) / 1e6, "p99": percentile(times, 0.99) / 1e6, "lost": lost}


@contextlib.contextmanager
def _server(home: Path, more: dict[str, str]) -> Iterator[int]:
    port = _free_port()
    case = json.dumps({"carrier": "http", "tools": 1, "port": port, **more})
    limited = ["/bin/sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh"]
    process = subprocess.Popen(  # noqa: S603
        [*limited, sys.executable, str(HERE / "serve_toolwire.py"), case],
        env=environment(home),
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield port
    finally:
        _ended(process)


@contextlib.contextmanager
def _idlers(port: int) -> Iterator[None]:
    """Silent connections, in as many processes as their own limit of descriptors asks for."""
    share = min(IDLERS, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 100)
    with contextlib.ExitStack() as stack:
        processes = []
        for start in range(0, IDLERS, share):
            count = min(share, IDLERS - start)
            command = [sys.executable, str(HERE / "idlers.py"), str(port), str(count), "again"]
            process = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            stack.callback(_ended, process)
            processes.append(process)
        for process in processes:
            if process.stdout is None or not process.stdout.readline():
                raise RuntimeError("the silent connections could not be opened")
        yield
