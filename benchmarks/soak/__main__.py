"""`python -m benchmarks.soak`: runs the loads at once, watches them, and says what was lost, leaked or slow.

Each load is a process of its own, so that what leaks can be told apart; so are the server and the API that two of
them start. All end by themselves; whatever happens, they end with this process, since each ends with its input.
The exit code is 1 if anything was wrong.
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

from benchmarks.processes import HERE, environment
from benchmarks.soak import report
from benchmarks.soak.watch import MEGABYTE, Watched

LOADS: dict[str, tuple[str, dict[str, Any]]] = {
    "sessions": ("sessions", {"at_once": 4, "real": 1}),
    "sessions on trio": ("sessions", {"at_once": 2, "real": 0, "backend": "trio"}),
    "HTTP clients": ("http_clients", {}),
    "catalogue": ("catalogue", {}),
}
"""The program of each load, and its case."""
GRACE = 300.0
"""Seconds that a load may take longer than asked: to start, to end, and to compare, on a busy machine."""
ENDING = 20.0
SAMPLE, PROGRESS = 1.0, 15.0
_MOST_POINTS = 120


class Load:
    """A running load: the processes it names, the tasks it counts, and in the end its report."""

    def __init__(self, name: str, program: str, case: dict[str, Any], folder: Path) -> None:
        self.name = name
        self.watched: list[Watched] = []
        self.report: dict[str, Any] | None = None
        self.done = self.wrong = 0
        self.begun = 0.0
        self.log: IO[str] = (folder / f"{name}.log").open("w+")
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", f"benchmarks.soak.{program}", json.dumps({"name": name, **case})],
            env=environment(folder),
            cwd=HERE.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None  # noqa: S101
        for line in self.process.stdout:
            told = json.loads(line)
            for name, pid in told.get("pids", {}).items():
                self.watched.append(Watched(name, pid))
            if "begun" in told:
                self.begun = time.monotonic()
            if "tasks" in told and self.begun:
                self.done, self.wrong = told["done"], told["wrong"]
                self.watched[0].note("tasks", time.monotonic() - self.begun, told["tasks"])
            self.report = told.get("report", self.report)

    def look(self) -> None:
        """Take a sample of its processes, once the load has begun."""
        for each in list(self.watched) if self.begun else []:
            each.look(time.monotonic() - self.begun)

    @property
    def over(self) -> bool:
        return self.process.poll() is not None and not self._reader.is_alive()

    def end(self) -> None:
        """End it, if it has not ended by itself: it ends with its input, or is killed."""
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

    def problems(self, seconds: float) -> list[str]:
        """What was wrong with it, each with its name in front."""
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
            for each in watched.judged(seconds)
            if not each["flat"]
        ]
        return [f"{self.name}: {each}" for each in found]


def main(given: Sequence[str] | None = None) -> int:
    """Run the loads; 1 if anything was wrong."""
    asked = arguments().parse_args(given)
    seconds = asked.minutes * 60
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        loads = run(seconds, [name for name in LOADS if name in (asked.loads or LOADS)], Path(folder))
        findings = [each for load in loads for each in load.problems(seconds)]
        for load in loads:
            load.end()
    found = {
        "minutes": asked.minutes,
        "load": [before, os.getloadavg()[0]],
        "loads": {load.name: load.report for load in loads if load.report},
        "flat": [each for load in loads for watched in load.watched for each in watched.judged(seconds)],
        "series": {
            watched.name: thinned(watched.points["memory"])
            for load in loads
            for watched in load.watched
            if "memory" in watched.points
        },
        "findings": findings,
    }
    report.write(asked.out, found, plots=asked.plots)
    sys.stdout.write((asked.out / report.PAGE).read_text())
    say(f"Written to {asked.out}: {report.PAGE}, {report.DATA}" + (" and the plots." if asked.plots else "."))
    for each in findings:
        say(f"WRONG: {each}")
    return 1 if findings else 0


def run(seconds: float, names: Sequence[str], folder: Path) -> list[Load]:
    """Run loads until all have ended or it has taken too long; then those that are left are ended."""
    loads: list[Load] = []
    try:
        for name in names:
            program, case = LOADS[name]
            loads.append(Load(name, program, {**case, "seconds": seconds}, folder))
        begun = told = time.monotonic()
        while not all(load.over for load in loads) and time.monotonic() - begun < seconds + GRACE:
            for load in loads:
                load.look()
            if time.monotonic() - told > PROGRESS:
                told = time.monotonic()
                say(progress(loads, told - begun, seconds))
            time.sleep(SAMPLE)
    except BaseException:
        for load in loads:
            load.end()
        raise
    return loads


def progress(loads: Sequence[Load], passed: float, seconds: float) -> str:
    """A line for whoever waits."""
    parts = [
        f"{load.name}: {load.done:,} requests" + (f", {load.wrong} WRONG" if load.wrong else "")
        for load in loads
    ]
    return f"soak: {passed:.0f} of {seconds:.0f} s. " + "; ".join(parts)


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Some of the points, in minutes and megabytes."""
    step = max(1, len(points) // _MOST_POINTS)
    return [(round(at / 60, 3), round(value / MEGABYTE, 2)) for at, value in points[::step]]


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.soak", description="Load toolwire for a long time."
    )
    parser.add_argument(
        "loads", nargs="*", metavar="LOAD", help=f"which ones; all if none is named: {list(LOADS)}"
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="how long; 30 if not given")
    parser.add_argument(
        "--out", type=Path, default=Path("build/soak"), metavar="DIR", help="where results go"
    )
    parser.add_argument("--no-plots", dest="plots", action="store_false", help="without matplotlib")
    return parser


def say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
