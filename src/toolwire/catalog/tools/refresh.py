"""Decides when a list is fetched: at once, at intervals, on request, and soon again after a failure."""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from toolwire.errors import UsageError

_SHORTEST: Final = 1.0  # no API is asked more often than that, nor for ever without a pause
_SOONEST: Final = 1.0  # seconds after a first failure; doubled for each further one
_LATEST: Final = 300.0


class RefreshSchedule:
    """The schedule of one list. `interval` is in seconds, None for no refresh by itself."""

    def __init__(self, interval: float | None) -> None:
        if interval is not None and not interval >= _SHORTEST:  # NaN is no number of seconds either
            raise UsageError(
                f"refresh must be {_SHORTEST:g} second or more, or None for never, not {interval!r}"
            )
        self._interval = float("inf") if interval is None else interval
        self._asked, self._done = anyio.Event(), anyio.Event()

    def begin(self) -> None:
        """Start in this event loop, with new events: those who wait already then wait for the new list."""
        before, self._asked, self._done = self._done, anyio.Event(), anyio.Event()
        before.set()

    def ask(self) -> None:
        """Request a fetch now; `wait` waits for it from now on."""
        self._done = anyio.Event()
        self._asked.set()

    def give_up(self) -> None:
        """Release all waiters: there will be no list."""
        self._done.set()

    async def wait(self, within: float) -> None:
        """Wait until the list has been fetched, or could not be."""
        with anyio.move_on_after(within):
            while True:
                done = self._done
                await done.wait()
                if done is self._done:
                    return

    async def keep(self, fetch: Callable[[], Awaitable[bool]]) -> None:
        """Call `fetch` whenever it is due, for ever. It returns True if it succeeded."""
        failures = 0
        while True:
            done = self._done  # one that is asked for meanwhile is another's
            try:
                failures = 0 if await fetch() else failures + 1
            finally:
                done.set()
            pause = min(_SOONEST * 2.0 ** min(failures - 1, 20), _LATEST) if failures else self._interval
            with anyio.move_on_after(min(pause, self._interval)):
                await self._asked.wait()
                failures = 0
            self._asked = anyio.Event()
