"""Waiting for each other, between tasks of one event loop: a signal, a queue, a count of work, a value.

For asyncio and trio alike, built on `anyio.Event`. Nothing here is bounded, and nothing may be called from another
thread (see `threads.loop_caller` for that).
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, cast

import anyio

T = TypeVar("T")


class Signal:
    """Wakes every task that waits for it, and can be used again. Costs next to nothing while nobody waits."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def notify(self) -> None:
        """Wake all tasks that wait now."""
        event, self._event = self._event, None
        if event is not None:
            event.set()

    async def wait(self) -> None:
        """Wait for the next `notify()`."""
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()

    async def wait_until(self, condition: Callable[[], Any]) -> None:
        """Wait until `condition()` is true. It is evaluated now and after each `notify()`."""
        while not condition():
            await self.wait()


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
        """Append an item. One that is put after `close()` is dropped."""
        if not self._closed:
            self._items.append(item)
            self._filled.notify()

    def close(self) -> None:
        """Take no more items. Those that are left can still be read."""
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
    """Counts pieces of work that run; `wait` returns when none is left."""

    __slots__ = ("_changed", "count")

    def __init__(self) -> None:
        self.count = 0
        self._changed = Signal()

    def add(self) -> None:
        """One more piece of work has begun."""
        self.count += 1

    def done(self) -> None:
        """One piece of work has ended."""
        self.count -= 1
        if not self.count:
            self._changed.notify()

    async def wait(self) -> None:
        """Wait until no work is left."""
        while self.count:
            await self._changed.wait()


class Future(Generic[T]):
    """A value that is set once and waited for by any number of tasks."""

    __slots__ = ("_event", "_value")

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._value: T | None = None

    @property
    def is_set(self) -> bool:
        """True once there is a value."""
        return self._event.is_set()

    @property
    def value(self) -> T:
        """The value. Only meaningful once `is_set`."""
        return cast("T", self._value)

    def set(self, value: T) -> None:
        """Set the value. Only the first one counts."""
        if not self._event.is_set():
            self._value = value
            self._event.set()

    async def wait(self) -> T:
        """Wait for the value."""
        await self._event.wait()
        return self.value
