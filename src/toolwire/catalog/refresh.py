"""Servers whose tools are fetched after the handshake, and again at intervals. Must not know what is fetched."""

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
"""Seconds that the first `tools/list` waits for the list after a cold start."""

_SHORTEST_REFRESH: Final = 1.0  # no API is queried more often than that
_FIRST_RETRY: Final = 1.0  # seconds after a first failure; doubled for each further one
_LONGEST_RETRY: Final = 300.0


@dataclass(frozen=True)
class Status:
    """The state of a catalogue. `cached`: the API cannot be reached, and the tools are those of the last list."""

    state: Literal["idle", "loading", "live", "cached", "down"] = "idle"
    fetched: int = 0
    registered: int = 0
    skipped: tuple[Skipped, ...] = ()
    changes: tuple[Change, ...] = ()
    """How the list differs from the pins, or without pins from the previous list."""
    error: str | None = None
    at: float | None = None
    """When the list was fetched, in seconds since 1970."""


class RefreshSchedule:
    """Decides when a list is fetched: at once, at intervals, on request, and soon again after a failure.

    `interval` is in seconds, None for no automatic refresh.
    """

    def __init__(self, interval: float | None) -> None:
        if interval is not None and not interval >= _SHORTEST_REFRESH:  # also true for NaN
            raise UsageError(
                f"refresh must be {_SHORTEST_REFRESH:g} second or more, or None for never, got {interval!r}"
            )
        self._interval = float("inf") if interval is None else interval
        self._requested, self._done = anyio.Event(), anyio.Event()

    def begin(self) -> None:
        """Start in this event loop, with new events. Tasks that already wait then wait for the new list."""
        before, self._requested, self._done = self._done, anyio.Event(), anyio.Event()
        before.set()

    def request(self) -> None:
        """Request a fetch now; `wait` waits for it from now on."""
        self._done = anyio.Event()
        self._requested.set()

    def release_waiters(self) -> None:
        """Release all waiters: there will be no list."""
        self._done.set()

    async def wait(self, within: float) -> None:
        """Wait until the list has been fetched, or fetching it has failed."""
        with anyio.move_on_after(within):
            while True:
                done = self._done
                await done.wait()
                if done is self._done:
                    return

    async def keep(self, fetch: Callable[[], Awaitable[bool]]) -> None:
        """Call `fetch` whenever it is due, forever. It returns True if it succeeded."""
        failures = 0
        while True:
            done = self._done  # a fetch requested meanwhile has another event
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
                await self._requested.wait()
                failures = 0
            self._requested = anyio.Event()


class RefreshedServer(ToolServer[None]):
    """A server whose tools are fetched when the first client connects, at intervals, and on request.

    Its lifespan runs `_schedule.keep` with `_fetch`. A derived class defines what is fetched, and the messages.
    """

    _LOADING: str
    """Added to the error for an unknown tool while the list is still being fetched."""
    _DOWN: str
    """Added to it if there is no list; the reason follows."""
    _FAILED: str
    """Logged if the list could not be fetched; the reason follows."""

    def __init__(self, name: str, refresh: float | None, logger: logging.Logger, **settings: Any) -> None:
        """Create a server. `refresh` is in seconds, None for no automatic refresh."""
        super().__init__(name, **settings)
        self._logger = logger
        self.status = Status()
        self._schedule = RefreshSchedule(refresh)
        self._listable = anyio.Event()  # set when there is a list, or when there will not be one

    @property
    def _has_list(self) -> bool:
        """True if there are tools from an earlier list."""
        raise NotImplementedError

    def _scrub(self, text: str) -> str:
        """Remove our secrets from a text."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Fetch the list again now; `loaded` waits for it. Call it in the event loop."""
        self._schedule.request()

    async def loaded(self, within: float = 30.0) -> Status:
        """Wait until the list has been fetched, or fetching it has failed. A client must be connected."""
        await self._schedule.wait(within)
        return self.status

    def connect(self, channel: ClientChannel, *, notify_all_updates: bool = False) -> DirectConnection:
        """Open a connection for one client. The first one starts fetching the list."""
        if self.open_lifespan is None:
            self._schedule.begin()
            self._listable = anyio.Event()
        return super().connect(channel, notify_all_updates=notify_all_updates)

    def before_list(self) -> Callable[[], Awaitable[None]] | None:
        """Return a function that waits for the first list, with a time limit; None if no wait is needed."""
        return None if self._has_list or self._listable.is_set() else self._first_list

    async def _first_list(self) -> None:
        with anyio.move_on_after(LIST_WAIT):
            await self._listable.wait()

    def unknown(self, name: str) -> str:
        """Return the error text for an unknown tool."""
        text = super().unknown(name)
        if self.status.state == "loading":
            return f"{text} {self._LOADING}"
        return f"{text} {self._DOWN}: {self.status.error}" if self.status.state == "down" else text

    async def _fetch(self, listable: anyio.Event, take: Callable[[], Awaitable[None]]) -> bool:
        """Call `take` to fetch and offer the list, then set `listable`. Returns True if that succeeded."""
        if not self._has_list:
            self.status = replace(self.status, state="loading")
        try:
            await take()
        except (CatalogError, UsageError) as error:
            self._report_failure(str(error))
            return False
        except Exception as error:
            # The boundary of the task that refreshes the list: if it ended, the list would stay stale.
            self._logger.exception("fetching the list of %s failed unexpectedly", self.name)
            self._report_failure(f"{type(error).__name__}, see the log")
            return False
        finally:
            listable.set()
        return True

    def _report_failure(self, error: str) -> None:
        """Report once that the list could not be fetched; the present tools stay."""
        reason = self._scrub(error)
        if self.status.error is None:
            more = "; the previous tools stay" if self._has_list else ""
            self._log_and_notify(f"{self._FAILED}: {reason}{more}", "warning")
        self.status = replace(self.status, state="cached" if self._has_list else "down", error=reason)

    def _log_and_notify(self, text: str, level: Literal["warning", "notice"]) -> None:
        """Log a text here, and send it to clients as a log message."""
        self._logger.warning("%s: %s", self.name, text)
        self.log(text, level=level)
