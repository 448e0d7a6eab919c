"""Synchronisation between the tasks of one event loop: a signal, a queue, a wait group, a future.

For asyncio and trio alike. Queues are not bounded, and nothing may be called from another thread (see
`threads.loop_caller` for that). On asyncio nothing here loads anyio's backend, which takes longer than a whole
plain `query()`: a timeout wakes the task that waits, instead of cancelling it.
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, Generic, Self, TypeVar, cast

import anyio

from toolwire._support.tasks import on_trio

T = TypeVar("T")


class Signal:
    """Wakes every task that waits for it, and can be used again. Costs next to nothing while no task waits."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None] | anyio.Event] = []

    @property
    def has_waiting(self) -> bool:
        """True if a task waits for it."""
        return bool(self._waiting)

    def notify(self) -> None:
        """Wake all tasks that wait now."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                if not isinstance(each, asyncio.Future):
                    each.set()
                elif not each.done():  # done if its task was cancelled, and has not run since
                    each.set_result(None)

    async def wait(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - no scope on asyncio, see above
        """Wait for the next `notify()`, at most `timeout` seconds."""
        if on_trio():
            event = anyio.Event()
            with nullcontext() if timeout is None else anyio.move_on_after(timeout):
                await self._wait_for(event, event.wait())
            return
        loop = asyncio.get_running_loop()
        # Faster than an event, which matters because this runs for each message.
        future: asyncio.Future[None] = loop.create_future()
        if timeout is None or timeout == math.inf:
            await self._wait_for(future, future)
            return
        timer = loop.call_later(max(0.0, timeout), self._wake, future)
        try:
            await self._wait_for(future, future)
        finally:
            timer.cancel()

    def _wake(self, future: "asyncio.Future[None]") -> None:
        """Wake a task whose timeout is over."""
        if future in self._waiting:
            self._waiting.remove(future)
            if not future.done():
                future.set_result(None)

    async def _wait_for(self, waiting: "asyncio.Future[None] | anyio.Event", woken: Awaitable[None]) -> None:
        self._waiting.append(waiting)
        try:
            await woken
        except BaseException:  # cancelled
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            raise

    async def wait_until(self, condition: Callable[[], Any], timeout: float | None = None) -> None:  # noqa: ASYNC109 - as above
        """Wait until `condition()`, evaluated now and after each `notify()`, is true; at most `timeout` seconds."""
        if timeout is None:
            while not condition():
                await self.wait()
        elif on_trio():
            with anyio.move_on_after(timeout):
                await self.wait_until(condition)
        else:
            now = asyncio.get_running_loop().time
            end = now() + timeout
            while not condition():
                await self.wait(end - now())
                if now() >= end:
                    break


class Mailbox(Generic[T]):
    """An unbounded queue: `put` never waits, `get` waits for an item. `async for` reads it until it is closed."""

    __slots__ = ("_closed", "_filled", "_items")

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._filled = Signal()
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Append an item. After `close()` it is dropped."""
        if not self._closed:
            self._items.append(item)
            self._filled.notify()

    def close(self) -> None:
        """Accept no more items. Those that are left can still be read."""
        self._closed = True
        self._filled.notify()

    def clear(self) -> None:
        """Drop the items that are left."""
        self._items.clear()

    async def get(self) -> T:
        """Remove and return the oldest item; `anyio.EndOfStream` if the mailbox is closed and empty."""
        while not self._items:
            if self._closed:
                raise anyio.EndOfStream
            await self._filled.wait()
        return self._items.popleft()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            return await self.get()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class WaitGroup:
    """Counts running pieces of work; `wait` returns when there are none."""

    __slots__ = ("_changed", "count")

    def __init__(self) -> None:
        self.count = 0
        self._changed = Signal()

    def add(self) -> None:
        """Count a piece of work that starts."""
        self.count += 1

    def done(self) -> None:
        """Count a piece of work that has ended."""
        self.count -= 1
        if not self.count:
            self._changed.notify()

    async def wait(self) -> None:
        """Wait until no work is running."""
        while self.count:
            await self._changed.wait()


class Future(Generic[T]):
    """A value that is set once and waited for by any number of tasks."""

    __slots__ = ("_changed", "_value", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        """True once there is a value."""
        self._changed = Signal()
        self._value: T | None = None

    @property
    def value(self) -> T:
        """The value. Only meaningful once `is_set`."""
        return cast("T", self._value)

    def set(self, value: T) -> None:
        """Set the value. Only the first one counts."""
        if not self.is_set:
            self.is_set = True
            self._value = value
            self._changed.notify()

    async def wait(self, timeout: float | None = None) -> T:  # noqa: ASYNC109 - as above
        """Wait for the value. Also returns after `timeout` seconds without one: check `is_set`."""
        await self._changed.wait_until(lambda: self.is_set, timeout)
        return self.value
