"""A request that runs before `mcp` has it, and how `mcp`'s handler takes it over.

What can be answered at once never gets there (see `quick`). The rest is given to `mcp` with what has begun: its
handler finds that by context, lends it the client, and waits for it, instead of running the tool a second time.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import anyio
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from toolwire._protocol.jsonrpc import CANCELLED
from toolwire._support.tasks import spawn
from toolwire.mcp.serve.channel import RequestChannel

_HANDOVER: Final = 5.0  # seconds that `mcp` has to take a request over before it is given up

Work = Callable[[RequestChannel], Awaitable[dict[str, Any]]]


class Begun:
    """A request under way. `turned` is set once there is an outcome, or the tool needs the client."""

    def __init__(self, request_id: int | str) -> None:
        self.request_id = request_id
        self.turned = anyio.Event()
        self.result: dict[str, Any] | None = None
        """What it came to, if that is good."""
        self.cancelled = False
        self._error: BaseException | None = None
        self._over = anyio.Event()
        self._taken = anyio.Event()
        self._channel: RequestChannel | None = None
        self._scope = anyio.CancelScope()

    def start(self, channel: RequestChannel, work: Work, on_done: Callable[[], None]) -> None:
        """Run it in a task of its own. `on_done` is called when it has ended."""
        self._channel = channel
        spawn(self._run, channel, work, on_done=on_done)

    async def _run(self, channel: RequestChannel, work: Work) -> None:
        try:
            with self._scope:
                self.result = await work(channel)
        except Exception as error:  # noqa: BLE001 - goes to whoever waits for the outcome
            self._error = error
        finally:
            self._over.set()
            self.turned.set()

    def cancel(self) -> None:
        """The client does not want it any more. What has been taken over is not cancelled here."""
        if not self._taken.is_set():
            self.cancelled = True
            self._scope.cancel()

    async def outcome(self, ctx: ServerRequestContext[Any, Any]) -> dict[str, Any]:
        """Take it over: the result, or its error raised. To cancel this is to cancel it."""
        self._taken.set()
        if self._channel is not None:
            self._channel.bind(ctx)
        try:
            await self._over.wait()
        except BaseException:
            self._scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._over.wait()
            raise
        if self._error is not None:
            raise self._error
        if self.result is None:
            raise MCPError(code=CANCELLED, message="Request cancelled")
        return self.result

    @contextmanager
    def handed_over(self, answered: Callable[[], bool]) -> Iterator[None]:
        """Inside, `taken_over` finds it. If nobody takes it, it ends: at once if the client was `answered`."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)
            if not self._taken.is_set() and not self._over.is_set():
                if answered():
                    self.cancel()
                else:
                    spawn(self._give_up)

    async def _give_up(self) -> None:
        with anyio.move_on_after(_HANDOVER):
            await self._taken.wait()
            return
        self._scope.cancel()


_current: ContextVar[Begun | None] = ContextVar("toolwire_begun", default=None)


def taken_over(request_id: Any) -> Begun | None:
    """What has begun already of the request that is being handled."""
    begun = _current.get()
    return begun if begun is not None and begun.request_id == request_id else None
