"""When a list is fetched: at once, every so often, when somebody asks, and soon again after a failure."""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from toolwire.errors import UsageError

_SHORTEST: Final = 1.0  # no API is asked more often than that, nor for ever without a pause
_SOONEST: Final = 1.0  # seconds after a first failure; doubled for each further one
_LATEST: Final = 300.0


class RefreshSchedule:
    """The times of one list. `interval` is in seconds, None for never by itself."""

    def __init__(self, interval: float | None) -> None:
        if interval is not None and not interval >= _SHORTEST:  # NaN is no number of seconds either
            raise UsageError(
                f"refresh must be {_SHORTEST:g} second or more, or None for never, not {interval!r}"
            )
        self._interval = float("inf") if interval is None else interval
        self._asked, self._done = anyio.Event(), anyio.Event()

    def begin(self) -> None:
        """Forget what was waited for in another event loop. Who waits in this one goes on with the new list."""
        before, self._asked, self._done = self._done, anyio.Event(), anyio.Event()
        before.set()

    def ask(self) -> None:
        """Fetch again now; who waits from now on waits for that."""
        self._done = anyio.Event()
        self._asked.set()

    def give_up(self) -> None:
        """There will be no list: nobody need wait."""
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
        """Call `fetch` whenever it is time, for ever. It returns whether it could."""
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
