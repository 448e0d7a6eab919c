"""Runs a load as a program that counts how its requests end, and reports as lines of JSON.

Every line on its stdout is an object: `{"pids": {...}}` names processes to watch, `{"begun": true}` is written when
everything is set up, `{"done": ..., "wrong": ..., "tasks": ...}` each second, and `{"report": {...}}` last. Its
memory stays constant: times go into a histogram.
"""

import json
import math
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from toolwire._support.tasks import on_trio

PATIENCE = 120.0
"""Seconds within which any request must end; after that it counts as hanging."""
_FIRST = 1e-6
_STEP = math.log(1.02)
_SHOWN = 20


class Times:
    """A histogram of times in steps of two percent, whose size does not depend on the number of requests."""

    def __init__(self, steps: dict[int, int] | None = None, longest: float = 0.0) -> None:
        self.steps: Counter[int] = Counter(steps or {})
        self.longest = longest

    @property
    def count(self) -> int:
        return self.steps.total()

    def add(self, seconds: float) -> None:
        """Add the time of one request."""
        self.longest = max(self.longest, seconds)
        self.steps[int(math.log(max(seconds, _FIRST) / _FIRST) / _STEP)] += 1

    def compute_percentile(self, share: float) -> float:
        """Return the time that this share of the requests does not exceed, accurate to two percent."""
        left = self.count * share
        for step in sorted(self.steps):
            left -= self.steps[step]
            if left <= 0:
                return min(_FIRST * math.exp((step + 1) * _STEP), self.longest)
        return self.longest

    def to_json(self) -> dict[str, Any]:
        return {"steps": dict(self.steps), "longest": self.longest}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Times":
        return cls({int(step): count for step, count in data["steps"].items()}, data["longest"])


class ExpectedEnd(Exception):  # noqa: N818 - an end that the load provoked
    """A request ended without a response, as the load provoked. Texts are counted, so they have no numbers."""


class WrongError(Exception):
    """The response is not the right one."""


def check(so: object, text: str) -> None:
    """Raise `WrongError` with this text unless `so` is true."""
    if not so:
        raise WrongError(text[:500])


class Book:
    """The counts of a load: how its requests ended, and how long they took."""

    def __init__(self) -> None:
        self.begun = 0
        self.answered = 0
        self.expected: Counter[str] = Counter()
        self.wrong = 0
        self.findings: list[str] = []
        self.times: dict[str, Times] = {}

    @contextmanager
    def track(self, kind: str) -> Iterator[None]:
        """Count the request in the `with` block as answered, ended as expected, or wrong.

        A cancelled request is counted as begun only.
        """
        self.begun += 1
        since = time.perf_counter()
        try:
            yield
        except ExpectedEnd as end:
            self.expected[str(end)] += 1
        except Exception as error:  # noqa: BLE001 - any exception is a finding
            self.wrong += 1
            self.add_finding(f"{kind}: {error!r}")
        else:
            self.answered += 1
            self.times.setdefault(kind, Times()).add(time.perf_counter() - since)

    def add_finding(self, text: str) -> None:
        """Add something that is wrong; only the first 20 are kept."""
        if len(self.findings) < _SHOWN:
            self.findings.append(text)

    @property
    def done(self) -> int:
        """The number of requests that have ended."""
        return self.answered + self.expected.total() + self.wrong

    def to_json(self) -> dict[str, Any]:
        return {
            "begun": self.begun,
            "answered": self.answered,
            "expected": dict(sorted(self.expected.items())),
            "wrong": self.wrong,
            "findings": self.findings,
            "times": {kind: each.to_json() for kind, each in sorted(self.times.items())},
        }


Work = Callable[[Book, dict[str, Any]], Awaitable[dict[str, Any]]]
"""A load: makes requests, which the book counts, for as long as the case says. Returns more report entries."""


def write_line(**line: Any) -> None:
    """Write a JSON line for the process that watches this one."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def begin(case: dict[str, Any]) -> float:
    """Report that the load begins. Returns when it must end, on the monotonic clock."""
    write_line(begun=True)
    return time.monotonic() + float(case["seconds"])


def main(work: Work, case: dict[str, Any]) -> None:
    """Run a load on the event loop that the case names, and write the report. Exits at once when its input ends."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    book = Book()
    more = anyio.run(partial(_run_work, work, book, case), backend=case.get("backend", "asyncio"))
    if book.done != book.begun:
        book.add_finding(f"{book.begun - book.done} requests were lost: they neither ended nor failed")
    write_line(report={**book.to_json(), **more})


def _end_with_input() -> None:
    """Exit at once when the input ends."""
    with suppress(OSError):
        os.read(0, 1)
    os._exit(3)


async def _run_work(work: Work, book: Book, case: dict[str, Any]) -> dict[str, Any]:
    """Run the load, and add a finding for tasks or child processes that it leaves behind."""
    write_line(pids={case["name"]: os.getpid()})
    before = count_tasks()
    async with anyio.create_task_group() as group:
        group.start_soon(_write_progress, book)
        more = await work(book, case)
        group.cancel_scope.cancel()
    left = {"tasks": count_tasks() - before, "children": len(list_children())}
    await _wait_until_gone(left, before)
    for what, count in left.items():
        if count > 0:
            book.add_finding(f"{count} {what} left behind")
    return {**more, "left": left}


async def _write_progress(book: Book) -> None:
    """Write the progress each second, until cancelled."""
    while True:
        write_line(done=book.done, wrong=book.wrong, tasks=count_tasks())
        await anyio.sleep(1)


async def _wait_until_gone(left: dict[str, int], before: int) -> None:
    """Wait up to 30 seconds until tasks and processes that have just ended are gone, and update `left`."""
    for _ in range(600):
        left |= {"tasks": count_tasks() - before, "children": len(list_children())}
        if not any(each > 0 for each in left.values()):
            return
        await anyio.sleep(0.05)


def count_tasks() -> int:
    """Return the number of tasks on this event loop."""
    if on_trio():
        import trio  # noqa: PLC0415 - only where it is in use

        return trio.lowlevel.current_statistics().tasks_living
    import asyncio  # noqa: PLC0415

    return len(asyncio.all_tasks())


def list_children() -> list[int]:
    """Return the ids of the child processes, including zombies."""
    found: list[int] = []
    for each in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found += map(int, each.read_text().split())
    return found
