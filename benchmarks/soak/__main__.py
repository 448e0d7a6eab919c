"""`python -m benchmarks.soak`: runs all loads at once, watches them, and reports what was lost, leaked or slow.

Each load is a separate process, so that a leak can be attributed; so are the server and the API that two of them
start. All exit by themselves, and in any case when this process does, since each exits when its input ends. The
exit code is 1 if anything was wrong.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from benchmarks.processes import HERE, make_environment
from benchmarks.soak import report
from benchmarks.soak.watch import MEGABYTE, Watched

LOADS: dict[str, tuple[str, dict[str, Any]]] = {
    "sessions": ("sessions", {"at_once": 4, "real": 1}),
    "sessions on trio": ("sessions", {"at_once": 2, "real": 0, "backend": "trio"}),
    "HTTP clients": ("http_clients", {}),
    "catalogue": ("catalogue", {}),
}
"""The module of each load, and the case that it gets."""
GRACE = 300.0
"""Seconds that a load may take beyond the requested time: to start, to end and to compare, on a busy machine."""
ENDING = 20.0
SAMPLE, PROGRESS = 1.0, 15.0
_MOST_POINTS = 120


class Load:
    """A running load: the processes to watch, its progress, and in the end its report."""

    def __init__(self, name: str, program: str, case: dict[str, Any], folder: Path) -> None:
        self.name = name
        self.watched: list[Watched] = []
        self.report: dict[str, Any] | None = None
        self.done = self.wrong = 0
        self.begun = 0.0
        self.log: IO[str] = (folder / f"{name}.log").open("w+")
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", f"benchmarks.soak.{program}", json.dumps({"name": name, **case})],
            env=make_environment(folder),
            cwd=HERE.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Read the lines that the load writes, in a thread, until its output ends."""
        assert self.process.stdout is not None  # noqa: S101
        for line in self.process.stdout:
            message = json.loads(line)
            for name, pid in message.get("pids", {}).items():
                self.watched.append(Watched(name, pid))
            if "begun" in message:
                self.begun = time.monotonic()
            if "tasks" in message and self.begun:
                self.done, self.wrong = message["done"], message["wrong"]
                self.watched[0].add("tasks", time.monotonic() - self.begun, message["tasks"])
            self.report = message.get("report", self.report)

    def sample(self) -> None:
        """Take a sample of each process of the load, once the load has begun."""
        for each in list(self.watched) if self.begun else []:
            each.sample(time.monotonic() - self.begun)

    @property
    def is_over(self) -> bool:
        """True if the process has exited and all its output was read."""
        return self.process.poll() is not None and not self._reader.is_alive()

    def end(self) -> None:
        """Close the input of the load, so that it exits, and kill it if it does not."""
        assert self.process.stdin is not None  # noqa: S101
        self.process.stdin.close()
        try:
            self.process.wait(ENDING)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(ENDING)
        assert self.process.stdout is not None  # noqa: S101
        self.process.stdout.close()
        self.log.close()

    def list_problems(self, seconds: float) -> list[str]:
        """Return everything that was wrong with the load, each prefixed with its name."""
        found = list((self.report or {}).get("findings", []))
        if self.report is None:
            self.log.seek(0)
            code = self.process.poll()
            why = "did not end in time" if code is None else f"ended with exit code {code}"
            found.append(f"{why}, without a report: {self.log.read()[-2000:]}")
        found += [
            f"{each['measure']} of the process {each['process']!r} grew from {each['second quarter']:,.0f} to "
            f"{each['last quarter']:,.0f}"
            for watched in self.watched
            for each in watched.judge(seconds)
            if not each["flat"]
        ]
        return [f"{self.name}: {each}" for each in found]


def main(given: Sequence[str] | None = None) -> int:
    """Run the loads and write the results. Returns 1 if anything was wrong."""
    options = make_parser().parse_args(given)
    seconds = options.minutes * 60
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        loads = run(seconds, [name for name in LOADS if name in (options.loads or LOADS)], Path(folder))
        findings = [each for load in loads for each in load.list_problems(seconds)]
        for load in loads:
            load.end()
    found = {
        "minutes": options.minutes,
        "load": [before, os.getloadavg()[0]],
        "loads": {load.name: load.report for load in loads if load.report},
        "flat": [each for load in loads for watched in load.watched for each in watched.judge(seconds)],
        "series": {
            watched.name: thin(watched.points["memory"])
            for load in loads
            for watched in load.watched
            if "memory" in watched.points
        },
        "findings": findings,
    }
    report.write(options.out, found, plots=options.plots)
    sys.stdout.write((options.out / report.PAGE).read_text())
    say(
        f"Written to {options.out}: {report.PAGE}, {report.DATA}"
        + (" and the plots." if options.plots else ".")
    )
    for each in findings:
        say(f"WRONG: {each}")
    return 1 if findings else 0


def run(seconds: float, names: Sequence[str], folder: Path) -> list[Load]:
    """Run loads until all have exited, or until the time and the grace period are over."""
    loads: list[Load] = []
    try:
        for name in names:
            program, case = LOADS[name]
            loads.append(Load(name, program, {**case, "seconds": seconds}, folder))
        begun = reported = time.monotonic()
        while not all(load.is_over for load in loads) and time.monotonic() - begun < seconds + GRACE:
            for load in loads:
                load.sample()
            if time.monotonic() - reported > PROGRESS:
                reported = time.monotonic()
                say(format_progress(loads, reported - begun, seconds))
            time.sleep(SAMPLE)
    except BaseException:
        for load in loads:
            load.end()
        raise
    return loads


def format_progress(loads: Sequence[Load], passed: float, seconds: float) -> str:
    """Return a line of progress for the terminal."""
    parts = [
        f"{load.name}: {load.done:,} requests" + (f", {load.wrong} WRONG" if load.wrong else "")
        for load in loads
    ]
    return f"soak: {passed:.0f} of {seconds:.0f} s. " + "; ".join(parts)


def thin(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return about 120 of the points, in minutes and megabytes."""
    step = max(1, len(points) // _MOST_POINTS)
    return [(round(at / 60, 3), round(value / MEGABYTE, 2)) for at, value in points[::step]]


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.soak", description="Load toolwire for a long time."
    )
    parser.add_argument(
        "loads", nargs="*", metavar="LOAD", help=f"loads to run (default: all): {list(LOADS)}"
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="how long to run (default: 30)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/soak"),
        metavar="DIR",
        help="where to write results (default: build/soak)",
    )
    parser.add_argument(
        "--no-plots", dest="plots", action="store_false", help="do not draw plots, which need matplotlib"
    )
    return parser


def say(text: str) -> None:
    """Print a line to stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
