"""The lifespan of a server: a context manager, entered with the first connection and left after the last.

The context manager is entered and left in one task of its own, because cancel scopes in it demand that.
"""

from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import anyio

from toolwire._support.log import logger_for
from toolwire._support.tasks import Task, spawn
from toolwire.tools.dispatch.errors import describe, is_failure

logger = logger_for("server")

_CLOSING: Final = 10.0


class Lifespan:
    """One opening of a server's resources, shared by the connections of that time."""

    def __init__(self, manager: AbstractAsyncContextManager[Any], fallback: Any) -> None:
        self._manager = manager
        self._ready = anyio.Event()
        self._stop = anyio.Event()
        self._gone = anyio.Event()
        self._task: Task | None = None
        self.state: Any = fallback
        self.error: Exception | None = None

    @property
    def open(self) -> bool:
        """True while the context manager is entered."""
        return self._ready.is_set() and self.error is None

    def start(self) -> None:
        """Begin to open."""
        self._task = spawn(self._live)

    async def wait(self) -> Any:
        """The state, once it is there; what opening raised, if it failed."""
        await self._ready.wait()
        if self.error is not None:
            raise self.error
        return self.state

    async def aclose(self) -> None:
        """Close, in bounded time; what has not opened yet is not waited for."""
        self._stop.set()
        if not self._ready.is_set() and self._task is not None:
            self._task.cancel()
        with anyio.move_on_after(_CLOSING, shield=True):
            await self._gone.wait()
        if not self._gone.is_set() and self._task is not None:
            logger.error("the lifespan did not end within %g s: cancelled", _CLOSING)
            self._task.cancel()

    async def _live(self) -> None:
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
            self._gone.set()
