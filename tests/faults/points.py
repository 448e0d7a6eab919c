"""Cancels a piece of work at each of its awaits in turn: `sweep` runs it again and again, one await further on.

Four ways to cancel. Of asyncio: `task` (`task.cancel()` while it waits), `late` (the same just after the thing that
it waits for has come, so that both are due), `scope` (a cancel scope of anyio). Of trio: `trio`, its own scope.
"""

import asyncio
import types
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import anyio
import trio

from faults.leftovers import settled_tasks, tasks

WAYS_TO_CANCEL = ("task", "late", "scope", "trio")
MOST = 400
"""No work here has so many awaits: one that never comes to its end is an error."""


@dataclass
class Ended:
    """What came of work that was cancelled, or was to be."""

    hit: bool = False
    """Whether there was such an await."""
    cancelled: bool = False
    """Whether the cancellation came out."""
    result: Any = None


async def cancelled_at(point, how, work):
    """Do work in a task of its own, and cancel it at its await of that number."""
    return await (_on_trio(point, work) if how == "trio" else _on_asyncio(point, how, work))


def sweep(stage, how, case, record_property):
    """Cancel at every await of a case, which is `async def case(cancel)` and does `await cancel(work)` once.

    The case checks what came of it; then everything is counted that is left. Returns the number of awaits.
    """
    backend = "trio" if how == "trio" else "asyncio"
    for point in count():
        assert point < MOST, "it never comes to its end"
        ended = []

        async def cancel(work, point=point, ended=ended):
            ended.append(await cancelled_at(point, how, work))
            return ended[0]

        stage.play(backend, partial(case, cancel))
        if not ended[0].hit:
            break
    record_property("points", point)
    return point


async def _on_asyncio(point, how, work):
    ended = Ended()
    before = tasks()

    def cancel(future):
        ended.hit = True
        if how == "scope":
            scope.cancel()
        elif how == "late" and future is not None:
            future.add_done_callback(lambda _: task.cancel())
        else:
            task.cancel()

    async def inside():
        nonlocal scope
        if how != "scope":
            return await _stepped(work(), point, cancel)
        with anyio.CancelScope() as scope:
            return await _stepped(work(), point, cancel)
        ended.cancelled = scope.cancelled_caught
        return None

    scope = None
    task = asyncio.create_task(inside())
    await asyncio.wait([task])
    if task.cancelled():
        ended.cancelled = True
    else:
        ended.result = task.result()
    if ended.cancelled:  # by asyncio, which knows no shield, work ends before its clean-up does
        assert await settled_tasks({*before, asyncio.current_task()}) == set()
    return _checked(ended, how)


@types.coroutine
def _stepped(coroutine, point, cancel):
    """Pass on what a coroutine waits for, and call `cancel` with the one of that number before it is waited for."""
    step, value = coroutine.send, None
    for number in count():
        try:
            future = step(value)
        except StopIteration as stop:
            return stop.value
        if number == point:
            cancel(future)
        try:
            step, value = coroutine.send, (yield future)
        except BaseException as error:  # noqa: BLE001 - it is for the coroutine
            step, value = coroutine.throw, error
    return None


class _Steps(trio.abc.Instrument):
    """Counts the steps of one task, and cancels a scope at the one of that number."""

    def __init__(self, point, scope, ended):
        self._task = trio.lowlevel.current_task()
        self._left = point
        self._scope = scope
        self._ended = ended

    def after_task_step(self, task):
        """The task waits for something, or is at its end."""
        if task is self._task:
            if self._left == 0:
                self._ended.hit = True
                self._scope.cancel()
            self._left -= 1


async def _on_trio(point, work):
    ended = Ended()
    before = tasks() | {trio.lowlevel.current_task()}
    with trio.CancelScope() as scope:
        steps = _Steps(point, scope, ended)
        trio.lowlevel.add_instrument(steps)
        try:
            ended.result = await work()
        finally:
            trio.lowlevel.remove_instrument(steps)
    ended.cancelled = scope.cancelled_caught
    if ended.cancelled:
        assert await settled_tasks(before) == set()
    return _checked(ended, "trio")


def _checked(ended, how):
    """No cancellation is swallowed. A scope may come too late: where nothing was left to do but shielded work."""
    assert not ended.cancelled or ended.hit
    if how in ("task", "late"):
        assert ended.cancelled == ended.hit, "the cancellation was swallowed"
    return ended
