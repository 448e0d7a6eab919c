"""One lifespan for all sessions of a FastMCP server.

`mcp` runs a server's lifespan once for each session. FastMCP runs one for all of them, but ties it to the session
that came first: when that one ends, the others go on with resources that are closed, and two that start at once
both run it. Here it is entered in a task of its own before the first session and left after the last. It knows
nothing of messages.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from anyio.lowlevel import RunVar

from toolwire._support.log import logger_for
from toolwire._support.tasks import spawn

logger = logger_for("mcp")

_PATIENCE: Final = 5.0  # seconds that a new lifespan waits for the end of the one before it


@asynccontextmanager
async def shared_lifespan(core: Any) -> AsyncIterator[None]:
    """Inside, the server's lifespan is up. Raises what its start raised."""
    table = _table()
    lifespan = table.get(id(core))
    if lifespan is None or lifespan.leaving:
        lifespan = table[id(core)] = _Lifespan(core, lifespan)
    lifespan.users += 1
    try:
        await lifespan.up.wait()
        if lifespan.error is not None:
            raise lifespan.error
        yield
    finally:
        lifespan.users -= 1
        if not lifespan.users:
            await lifespan.leave()
            if table.get(id(core)) is lifespan:
                del table[id(core)]


class _Lifespan:
    """A lifespan that is up for as long as it has users."""

    def __init__(self, core: Any, before: "_Lifespan | None") -> None:
        self.users = 0
        self.up = anyio.Event()
        self.down = anyio.Event()
        self.error: Exception | None = None
        self._core = core
        self._before = before
        self._begun = False
        self._unused = anyio.Event()
        self._task = spawn(self._keep)

    @property
    def leaving(self) -> bool:
        """Whether it is too late to use it."""
        return self._unused.is_set() or self.down.is_set()

    async def leave(self) -> None:
        """End it, and wait for that. Whoever is cancelled meanwhile cancels it too."""
        self._unused.set()
        if self._begun and not self.up.is_set():
            self._task.cancel()
        try:
            await self.down.wait()
        finally:
            if not self.down.is_set():
                self._task.cancel()

    async def _keep(self) -> None:
        self._begun = True
        try:
            if self._before is not None:
                with anyio.move_on_after(_PATIENCE):
                    await self._before.down.wait()
                self._before = None
            if not self._unused.is_set():
                async with self._core.lifespan(self._core):
                    self.up.set()
                    await self._unused.wait()
        except Exception as error:  # the boundary of the lifespan's task: its sessions raise it
            self.error = error
            if self.up.is_set():
                logger.exception("leaving the lifespan of an MCP server failed")
        finally:
            self.up.set()
            self.down.set()


_tables: RunVar[dict[int, _Lifespan]] = RunVar("toolwire_mcp_lifespans")


def _table() -> dict[int, _Lifespan]:
    """The lifespans of this event loop, by the identity of their server, which its users keep alive."""
    table = _tables.get(None)
    if table is None:
        table = {}
        _tables.set(table)
    return table
