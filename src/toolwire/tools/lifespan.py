"""The lifespan of a server: a context manager, entered at the first connection and exited after the last.

It is entered and exited in one task of its own, because cancel scopes inside it require that. Must not know what
the lifespan is for.
"""

from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import anyio

from toolwire._support.log import logger_for
from toolwire._support.tasks import Task, spawn
from toolwire.tools.dispatch.errors import describe, is_failure

logger = logger_for("server")

_CLOSE_TIMEOUT: Final = 10.0  # seconds


class Lifespan:
    """One run of a server's lifespan, shared by all connections that are open at that time."""

    def __init__(self, manager: AbstractAsyncContextManager[Any], fallback: Any) -> None:
        self._manager = manager
        self._ready = anyio.Event()
        self._stop = anyio.Event()
        self._closed = anyio.Event()
        self._task: Task | None = None
        self.state: Any = fallback
        self.error: Exception | None = None

    @property
    def open(self) -> bool:
        """True while the context manager is entered."""
        return self._ready.is_set() and self.error is None

    def start(self) -> None:
        """Start to enter the context manager."""
        self._task = spawn(self._run)

    async def wait(self) -> Any:
        """Wait until it is entered, and return the state. Raises what entering raised."""
        await self._ready.wait()
        if self.error is not None:
            raise self.error
        return self.state

    async def aclose(self) -> None:
        """Exit it, in bounded time. If it is not entered yet, that is cancelled."""
        self._stop.set()
        if not self._ready.is_set() and self._task is not None:
            self._task.cancel()
        with anyio.move_on_after(_CLOSE_TIMEOUT, shield=True):
            await self._closed.wait()
        if not self._closed.is_set() and self._task is not None:
            logger.error("the lifespan did not end within %g s and is cancelled", _CLOSE_TIMEOUT)
            self._task.cancel()

    async def _run(self) -> None:
        try:
            async with self._manager as state:
                if state is not None:
                    self.state = state
                self._ready.set()
                await self._stop.wait()
        except BaseException as error:
            if not is_failure(error):
                self.error = self.error or RuntimeError("it was cancelled")
                raise
            if self._ready.is_set():
                logger.exception("closing the lifespan failed")
            else:
                self.error = error if isinstance(error, Exception) else RuntimeError(describe(error))
                logger.exception("opening the lifespan failed")
        finally:
            self._ready.set()
            self._closed.set()
