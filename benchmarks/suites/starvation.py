"""How long a served call takes while thousands of silent connections occupy a server with few descriptors.

The server is limited to 256 descriptors. Its clients either keep their connections or open one for each call.
Whenever the server closes a silent connection, it is opened again.
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
from benchmarks.processes import HERE, compute_percentile, make_environment
from benchmarks.results import Bench, Figures
from benchmarks.suites.served import CALL, _find_free_port, _stop

SUITE = "starvation"
IDLERS = 5_000
DESCRIPTORS = 256
_KEPT = 8
_CALLS = 400
_LOOPS = {"toolwire": {}, "toolwire uvloop": {"loop": "uvloop"}}
_UNITS = {"p50": "ms", "p99": "ms", "lost": ""}


def run(bench: Bench) -> None:
    """Measure calls without other connections, and with 5,000 silent ones."""
    turns = {name: (lambda more=more: _measure(bench.scale(_CALLS), more)) for name, more in _LOOPS.items()}
    bench.compare_cases(SUITE, f"{IDLERS:,} idle connections", turns, _UNITS, rounds=3)


def _measure(calls: int, more: dict[str, str]) -> dict[str, Figures]:
    """Measure all cases on one server."""
    with tempfile.TemporaryDirectory(prefix="bench-") as home, _run_server(Path(home), more) as port:
        with contextlib.ExitStack() as stack:
            kept = [stack.enter_context(Http(port, MODERN)) for _ in range(_KEPT)]
            figures = {
                "kept connections, in peace": _call_kept(kept, calls),
                "new connections, in peace": _call_new(port, calls),
            }
            with _open_idlers(port):
                figures |= {
                    f"kept connections, {IDLERS:,} silent ones": _call_kept(kept, calls),
                    f"new connections, {IDLERS:,} silent ones": _call_new(port, calls),
                }
        return figures


def _call_kept(clients: list[Http], calls: int) -> Figures:
    """Make calls on kept connections, in turn."""
    times: list[float] = []
    for number in range(calls):
        done = clients[number % len(clients)].send_each([CALL])
        mcp_client.check(done.replies, 1, "42.5")
        times += done.times
    return _compute_figures(times, 0)


def _call_new(port: int, calls: int) -> Figures:
    """Make each call on a new connection."""
    times: list[float] = []
    lost = 0
    for _ in range(calls):
        begun = time.perf_counter_ns()
        try:
            with Http(port, MODERN) as client:
                done = client.send_each([CALL])
        except (OSError, EOFError):
            # The server took it for a silent one and closed it, because 192 newer connections came first.
            lost += 1
            continue
        times.append(time.perf_counter_ns() - begun)
        mcp_client.check(done.replies, 1, "42.5")
    return _compute_figures(times, lost)


def _compute_figures(times: list[float], lost: int) -> Figures:
    """Return percentiles in milliseconds, and the number of lost calls."""
    return {
        "p50": compute_percentile(times, 0.5) / 1e6,
        "p99": compute_percentile(times, 0.99) / 1e6,
        "lost": lost,
    }


@contextlib.contextmanager
def _run_server(home: Path, more: dict[str, str]) -> Iterator[int]:
    """Run a server of toolwire with few descriptors. Yields its port."""
    port = _find_free_port()
    case = json.dumps({"carrier": "http", "tools": 1, "port": port, **more})
    limited = ["/bin/sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh"]
    process = subprocess.Popen(  # noqa: S603
        [*limited, sys.executable, str(HERE / "serve_toolwire.py"), case],
        env=make_environment(home),
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield port
    finally:
        _stop(process)


@contextlib.contextmanager
def _open_idlers(port: int) -> Iterator[None]:
    """Open silent connections, in as many processes as the limit of descriptors per process requires."""
    share = min(IDLERS, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 100)
    with contextlib.ExitStack() as stack:
        processes = []
        for start in range(0, IDLERS, share):
            count = min(share, IDLERS - start)
            command = [sys.executable, str(HERE / "idlers.py"), str(port), str(count), "again"]
            process = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            stack.callback(_stop, process)
            processes.append(process)
        for process in processes:
            if process.stdout is None or not process.stdout.readline():
                raise RuntimeError("the silent connections could not be opened")
        yield
