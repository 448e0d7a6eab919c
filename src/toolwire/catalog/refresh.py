"""Servers whose tools are fetched behind the handshake, and fetched again. Must not know what is fetched."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import anyio

from toolwire._protocol.jsonrpc import ClientChannel
from toolwire.catalog.tools.definitions import Skipped
from toolwire.catalog.tools.pins import Change
from toolwire.errors import CatalogError, UsageError
from toolwire.tools.dispatch.connection import DirectConnection
from toolwire.tools.server import ToolServer

LIST_WAIT: Final = 15.0
"""Seconds that the first `tools/list` waits for the list of a cold start."""

_SHORTEST_REFRESH: Final = 1.0  # no API is asked more often than that, nor for ever without a pause
_FIRST_RETRY: Final = 1.0  # seconds after a first failure; doubled for each further one
_LONGEST_RETRY: Final = 300.0


@dataclass(frozen=True)
class Status:
    """The state of a catalogue. `cached`: the API cannot be reached, and the tools are those of last time."""

    state: Literal["idle", "loading", "live", "cached", "down"] = "idle"
    fetched: int = 0
    registered: int = 0
    skipped: tuple[Skipped, ...] = ()
    changes: tuple[Change, ...] = ()
    """The differences of the list from the pins, or from the one before it."""
    error: str | None = None
    at: float | None = None
    """When the list was fetched, in seconds since 1970."""


class RefreshSchedule:
    """Decides when a list is fetched: at once, at intervals, on request, and soon again after a failure.

    `interval` is in seconds, None for no refresh by itself.
    """

    def __init__(self, interval: float | None) -> None:
        if interval is not None and not interval >= _SHORTEST_REFRESH:  # NaN is no number of seconds either
            raise UsageError(
                f"refresh must be {_SHORTEST_REFRESH:g} second or more, or None for never, not {interval!r}"
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
            pause = (
                min(_FIRST_RETRY * 2.0 ** min(failures - 1, 20), _LONGEST_RETRY)
                if failures
                else self._interval
            )
            with anyio.move_on_after(min(pause, self._interval)):
                await self._asked.wait()
                failures = 0
            self._asked = anyio.Event()


class RefreshedServer(ToolServer[None]):
    """A server whose tools are fetched when the first client connects, at intervals, and on request.

    Its lifespan runs `_schedule.keep` with `_fetch`. A derived class says what is fetched, and the words for it.
    """

    _LOADING: str
    """For a tool that is not there: the list is still on its way."""
    _DOWN: str
    """The same, if there is no list. The reason follows."""
    _FAILED: str
    """For the log: the list could not be had. The reason follows."""

    def __init__(self, name: str, refresh: float | None, logger: logging.Logger, **settings: Any) -> None:
        """Make a server. `refresh` is in seconds, None for no refresh by itself."""
        super().__init__(name, **settings)
        self._logger = logger
        self.status = Status()
        self._schedule = RefreshSchedule(refresh)
        self._listable = anyio.Event()  # set when there is a list, or will be none

    @property
    def _has_list(self) -> bool:
        """True if there are tools of an earlier list."""
        raise NotImplementedError

    def _scrub(self, text: str) -> str:
        """Take our secrets out of a text."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Fetch the list again now; `loaded` waits for it. From the event loop."""
        self._schedule.ask()

    async def loaded(self, within: float = 30.0) -> Status:
        """Wait until the list has been fetched, or could not be. For a server that somebody is connected to."""
        await self._schedule.wait(within)
        return self.status

    def connect(self, channel: ClientChannel, **settings: Any) -> DirectConnection:
        """Open a connection for one client. The first one starts fetching the list."""
        if self.open_lifespan is None:
            self._schedule.begin()
            self._listable = anyio.Event()
        return super().connect(channel, **settings)

    def before_list(self) -> Callable[[], Awaitable[None]] | None:
        """Wait for the first list of a cold start, but not for ever."""
        return None if self._has_list or self._listable.is_set() else self._first_list

    async def _first_list(self) -> None:
        with anyio.move_on_after(LIST_WAIT):
            await self._listable.wait()

    def unknown(self, name: str) -> str:
        """Return the error text for a tool that is not there."""
        said = super().unknown(name)
        if self.status.state == "loading":
            return f"{said} {self._LOADING}"
        return f"{said} {self._DOWN}: {self.status.error}" if self.status.state == "down" else said

    async def _fetch(self, listable: anyio.Event, take: Callable[[], Awaitable[None]]) -> bool:
        """Have `take` fetch the list and offer it, and set `listable` then. Returns whether it could be had."""
        if not self._has_list:
            self.status = replace(self.status, state="loading")
        try:
            await take()
        except (CatalogError, UsageError) as error:
            self._report_failure(str(error))
            return False
        except Exception as error:
            # The boundary of the task that keeps the list fresh: it lives on, or the list would be old for ever.
            self._logger.exception("the list of %s broke in an unexpected way", self.name)
            self._report_failure(f"{type(error).__name__}, see the log")
            return False
        finally:
            listable.set()
        return True

    def _report_failure(self, error: str) -> None:
        """Report once that the list could not be had; the present tools stay."""
        reason = self._scrub(error)
        if self.status.error is None:
            more = "; the previous tools stay" if self._has_list else ""
            self._tell(f"{self._FAILED}: {reason}{more}", "warning")
        self.status = replace(self.status, state="cached" if self._has_list else "down", error=reason)

    def _tell(self, text: str, level: Literal["warning", "notice"]) -> None:
        """Log something, here and for clients."""
        self._logger.warning("%s: %s", self.name, text)
        self.log(text, level=level)
