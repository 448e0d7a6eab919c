"""A load as a program of its own: what it asked and how each request ended, told as lines of JSON.

Every line on its stdout is an object: `{"pids": {...}}` names processes to watch, `{"begun": true}` comes when all
is set up, `{"done": ..., "tasks": ...}` each second, `{"report": {...}}` is the last one. Its own memory stays
flat: times go into a histogram.
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
"""Seconds within which any request has to end. One that has not hangs."""
_FIRST = 1e-6
_STEP = math.log(1.02)
_SHOWN = 20


class Times:
    """How long requests took, in steps of two percent: bounded, however many there are."""

    def __init__(self, steps: dict[int, int] | None = None, longest: float = 0.0) -> None:
        self.steps: Counter[int] = Counter(steps or {})
        self.longest = longest

    @property
    def count(self) -> int:
        return self.steps.total()

    def add(self, seconds: float) -> None:
        self.longest = max(self.longest, seconds)
        self.steps[int(math.log(max(seconds, _FIRST) / _FIRST) / _STEP)] += 1

    def percentile(self, share: float) -> float:
        """The time that this share of them does not exceed, to two percent."""
        left = self.count * share
        for step in sorted(self.steps):
            left -= self.steps[step]
            if left <= 0:
                return min(_FIRST * math.exp((step + 1) * _STEP), self.longest)
        return self.longest

    def as_json(self) -> dict[str, Any]:
        return {"steps": dict(self.steps), "longest": self.longest}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Times":
        return cls({int(step): count for step, count in data["steps"].items()}, data["longest"])


class Expected(Exception):  # noqa: N818 - an end that the load provoked
    """The request was not answered, as the load had provoked it. The text is counted, so it has no numbers."""


class WrongError(Exception):
    """An answer came, and it is not the right one."""


def check(so: object, text: str) -> None:
    """Fail the request unless it is so."""
    if not so:
        raise WrongError(text[:500])


class Book:
    """Every request of a load, and how it ended."""

    def __init__(self) -> None:
        self.begun = 0
        self.answered = 0
        self.expected: Counter[str] = Counter()
        self.wrong = 0
        self.findings: list[str] = []
        self.times: dict[str, Times] = {}

    @contextmanager
    def request(self, kind: str) -> Iterator[None]:
        """Account for one request: answered, ended as expected, or wrong. Only a cancelled one is none of them."""
        self.begun += 1
        since = time.perf_counter()
        try:
            yield
        except Expected as end:
            self.expected[str(end)] += 1
        except Exception as error:  # noqa: BLE001 - whatever it was, it is the finding
            self.wrong += 1
            self.blame(f"{kind}: {error!r}")
        else:
            self.answered += 1
            self.times.setdefault(kind, Times()).add(time.perf_counter() - since)

    def blame(self, text: str) -> None:
        """Note something that is wrong; the first few are kept."""
        if len(self.findings) < _SHOWN:
            self.findings.append(text)

    @property
    def done(self) -> int:
        return self.answered + self.expected.total() + self.wrong

    def as_json(self) -> dict[str, Any]:
        return {
            "begun": self.begun,
            "answered": self.answered,
            "expected": dict(sorted(self.expected.items())),
            "wrong": self.wrong,
            "findings": self.findings,
            "times": {kind: each.as_json() for kind, each in sorted(self.times.items())},
        }


Work = Callable[[Book, dict[str, Any]], Awaitable[dict[str, Any]]]
"""A load: fills the book for as long as the case says, and returns what is to be reported beside it."""


def tell(**line: Any) -> None:
    """Write a line for the process that watches."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def begin(case: dict[str, Any]) -> float:
    """Say that the load begins; when it is to end, on the monotonic clock."""
    tell(begun=True)
    return time.monotonic() + float(case["seconds"])


def main(work: Work, case: dict[str, Any]) -> None:
    """Run a load on the event loop that the case names, and report. Ends at once with its input."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    book = Book()
    more = anyio.run(partial(_told, work, book, case), backend=case.get("backend", "asyncio"))
    if book.done != book.begun:
        book.blame(f"{book.begun - book.done} requests were lost: they neither ended nor failed")
    tell(report={**book.as_json(), **more})


def _end_with_input() -> None:
    with suppress(OSError):
        os.read(0, 1)
    os._exit(3)


async def _told(work: Work, book: Book, case: dict[str, Any]) -> dict[str, Any]:
    tell(pids={case["name"]: os.getpid()})
    before = tasks_alive()
    async with anyio.create_task_group() as group:
        group.start_soon(_tell_progress, book)
        more = await work(book, case)
        group.cancel_scope.cancel()
    left = {"tasks": tasks_alive() - before, "children": len(children())}
    await _settled(left, before)
    for what, count in left.items():
        if count > 0:
            book.blame(f"{count} {what} left behind")
    return {**more, "left": left}


async def _tell_progress(book: Book) -> None:
    while True:
        tell(done=book.done, wrong=book.wrong, tasks=tasks_alive())
        await anyio.sleep(1)


async def _settled(left: dict[str, int], before: int) -> None:
    """Give what has just ended a while to be gone."""
    for _ in range(600):
        left |= {"tasks": tasks_alive() - before, "children": len(children())}
        if not any(each > 0 for each in left.values()):
            return
        await anyio.sleep(0.05)


def tasks_alive() -> int:
    """How many tasks there are on this event loop."""
    if on_trio():
        import trio  # noqa: PLC0415 - only where it is in use

        return trio.lowlevel.current_statistics().tasks_living
    import asyncio  # noqa: PLC0415

    return len(asyncio.all_tasks())


def children() -> list[int]:
    """The processes that this one has started, zombies included."""
    found: list[int] = []
    for each in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found += map(int, each.read_text().split())
    return found
