"""Cancels a piece of work at each of its awaits: `sweep` runs it again and again, each time one await further.

There are four ways to cancel. On asyncio: `task` (`task.cancel()` while it waits), `late` (the same just after the
awaited future is done, so that both are due), `scope` (a cancel scope of anyio). On trio: `trio`, its own scope.
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
    """The outcome of work that was to be cancelled."""

    hit: bool = False
    """Whether there was such an await."""
    cancelled: bool = False
    """Whether the cancellation came out."""
    too_late: bool = False
    """Whether the work had ended before what another task waited for came."""
    result: Any = None


async def cancelled_at(point, how, work, in_all_tasks=False):
    """Do work in a task of its own, and cancel it at its await with that number."""
    if how == "trio":
        return await _on_trio(point, work, in_all_tasks)
    return await _on_asyncio(point, how, work, in_all_tasks)


def sweep(stage, how, case, record_property, in_all_tasks=False):
    """Run a case, cancelled at each of its awaits: an `async def case(cancel)` that does `await cancel(work)` once.

    With `in_all_tasks` the awaits of the tasks that the work starts count too, but only the work is cancelled.
    The case checks the outcome; then nothing may be left. Returns the number of awaits.
    """
    backend = "trio" if how == "trio" else "asyncio"
    for point in count():
        assert point < MOST, "it never comes to its end"
        ended = []

        async def cancel(work, point=point, ended=ended):
            ended.append(await cancelled_at(point, how, work, in_all_tasks))
            return ended[0]

        stage.play(backend, partial(case, cancel))
        if not ended[0].hit:
            break
    record_property("points", point)
    return point


async def _on_asyncio(point, how, work, in_all_tasks):
    ended = Ended()
    before = tasks()
    left = point

    def cancel_late(_future):
        ended.too_late = not task.cancel()

    def on_await(future):
        nonlocal left
        left -= 1
        if left != -1:
            return
        ended.hit = True
        if how == "scope":
            scope.cancel()
        elif how == "late" and future is not None:
            future.add_done_callback(cancel_late)
        else:
            task.cancel()

    async def inside():
        nonlocal scope
        if how != "scope":
            return await _stepped(work(), on_await)
        with anyio.CancelScope() as scope:
            return await _stepped(work(), on_await)
        ended.cancelled = scope.cancelled_caught
        return None

    async def follow(coroutine):
        return await _stepped(coroutine, on_await)

    scope = None
    task = asyncio.create_task(inside())
    loop = asyncio.get_running_loop()
    if in_all_tasks:
        loop.set_task_factory(lambda loop, each, **more: asyncio.Task(follow(each), loop=loop, **more))
    await asyncio.wait([task])
    loop.set_task_factory(None)
    if task.cancelled():
        ended.cancelled = True
    else:
        ended.result = task.result()
    if ended.cancelled:  # `Task.cancel()` ignores shields: the work may end before its clean-up does
        assert await settled_tasks({*before, asyncio.current_task()}) == set()
    return _checked(ended, how)


@types.coroutine
def _stepped(coroutine, on_await):
    """Run a coroutine, and call `on_await` with each future before it is awaited."""
    step, value = coroutine.send, None
    while True:
        try:
            future = step(value)
        except StopIteration as stop:
            return stop.value
        on_await(future)
        try:
            step, value = coroutine.send, (yield future)
        except BaseException as error:  # noqa: BLE001 - the coroutine gets it
            step, value = coroutine.throw, error


class _Steps(trio.abc.Instrument):
    """Counts the steps of one task, or of all but some, and cancels a scope at the step with that number."""

    def __init__(self, point, scope, ended, others):
        self._task = trio.lowlevel.current_task()
        self._others = others
        """Tasks that do not count; None if only this one does."""
        self._left = point
        self._scope = scope
        self._ended = ended

    def after_task_step(self, task):
        """Count a step: the task waits for something, or has ended."""
        if task is self._task or (self._others is not None and task not in self._others):
            if self._left == 0:
                self._ended.hit = True
                self._scope.cancel()
            self._left -= 1


async def _on_trio(point, work, in_all_tasks):
    ended = Ended()
    before = tasks() | {trio.lowlevel.current_task()}
    with trio.CancelScope() as scope:
        steps = _Steps(point, scope, ended, before if in_all_tasks else None)
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
    """Check that no cancellation was swallowed. A scope may cancel too late: when only shielded work was left."""
    assert not ended.cancelled or ended.hit
    if how in ("task", "late") and not ended.too_late:
        assert ended.cancelled == ended.hit, "the cancellation was swallowed"
    return ended
