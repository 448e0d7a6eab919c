"""Direct calls of the handlers of an `mcp` 2.x server, without the queues and message objects of its session.

Owns the task and the context of each request. Must not know the client, nor what is done with a result.
"""

from collections.abc import Callable, Mapping
from contextvars import copy_context
from functools import partial
from typing import Any

import anyio

from toolwire._support.tasks import new_anyio_scope, spawn
from toolwire.mcp.compat import (
    ClientConnection,
    JSONRPCDispatcher,
    NoBackChannelError,
    ServerRunner,
    TransportContext,
    aclose_shielded,
    handler_exception_to_error_data,
)

OnDone = Callable[[int, Any], None]
"""Called with the id of a request and its outcome: a result, the `ErrorData` of an error, or an exception."""


class DirectDispatch:
    """Calls the handlers of one running `mcp` server, without the queues and message objects of its session.

    `Server.run` wraps each request and each response in a validated message, and passes each request through two
    queues. Here the parts of `run` are put together so that a request can also be given to the server's handler
    directly, in a task of its own with the server's context variables. The handshake, notifications and requests of
    the server still go through `mcp`'s own dispatcher.

    `on_done` is called, in a task of the server, when a request is done.
    """

    def __init__(self, low_level: Any, on_done: OnDone) -> None:
        self._low_level = low_level
        self._on_done = on_done
        self._running: set[RequestContext] = set()
        self._idle: anyio.Event | None = None  # while `_cancel_all` waits for the last request

    async def run(self, inbox: Any, outbox: Any, options: Any, on_ready: Callable[[], None]) -> None:
        """Serve until the inbox ends. `on_ready` is called as soon as `start` may be called."""
        async with self._low_level.lifespan(self._low_level) as state:
            # Messages after `initialize` wait for its response, as in mcp's own loops.
            dispatcher: Any = JSONRPCDispatcher(inbox, outbox, inline_methods=frozenset({"initialize"}))
            connection = ClientConnection.for_loop(dispatcher)
            runner = ServerRunner(self._low_level, connection, state, init_options=options)
            self._dispatcher = dispatcher
            self._transport = TransportContext(kind="jsonrpc", can_send_request=True)
            self._context = copy_context()
            self._handle = runner.on_request
            try:
                on_ready()
                await dispatcher.run(runner.on_request, runner.on_notify)
            finally:
                await self._cancel_all()
                await aclose_shielded(connection)

    def start(self, request_id: int, method: str, params: dict[str, Any]) -> "RequestContext":
        """Start a request. Never waits."""
        request = RequestContext(self._dispatcher, self._transport, request_id, params, new_anyio_scope())
        self._running.add(request)
        # Without a task group, because starting a task in one costs as much as everything else here.
        self._context.run(
            partial(spawn, self._run, request, method, params or None, on_done=partial(self._remove, request))
        )
        return request

    def _remove(self, request: "RequestContext") -> None:
        self._running.discard(request)
        if self._idle is not None and not self._running:
            self._idle.set()

    async def _cancel_all(self) -> None:
        """Cancel all requests and wait until they have ended: the lifespan must outlast them even if cancelled."""
        for request in self._running:
            request.cancel()
        cancelled: BaseException | None = None
        while self._running:
            self._idle = anyio.Event()
            try:
                with anyio.CancelScope(shield=True):
                    await self._idle.wait()
            except anyio.get_cancelled_exc_class() as error:  # asyncio's Task.cancel() ignores the shield
                cancelled = error
        if cancelled is not None:
            raise cancelled

    async def _run(self, request: "RequestContext", method: str, params: dict[str, Any] | None) -> None:
        try:
            with request.scope:
                try:
                    result = await self._handle(request, method, params)
                finally:
                    request.can_send_request = False
                self._on_done(request.request_id, result)
        except BaseException as error:  # the boundary of a handler: its exception is the response
            response = handler_exception_to_error_data(error) if isinstance(error, Exception) else None
            self._on_done(request.request_id, error if response is None else response)
            if not isinstance(error, Exception):
                raise


class RequestContext:
    """One running request: the dispatch context of `mcp`, through which a handler reaches the client."""

    message_metadata = None

    def __init__(
        self,
        dispatcher: Any,
        transport: TransportContext,
        request_id: int,
        params: Mapping[str, Any],
        scope: anyio.CancelScope,
    ) -> None:
        self.transport = transport
        self.request_id = request_id
        self.can_send_request = True
        self.scope = scope
        self._dispatcher = dispatcher
        self._params = params
        self._cancelled = False
        self._cancel_requested: anyio.Event | None = None

    def cancel(self) -> None:
        """Cancel the handler."""
        self._cancelled = True
        if self._cancel_requested is not None:
            self._cancel_requested.set()
        self.scope.cancel()

    @property
    def cancel_requested(self) -> anyio.Event:
        if self._cancel_requested is None:
            self._cancel_requested = anyio.Event()
            if self._cancelled:
                self._cancel_requested.set()
        return self._cancel_requested

    async def send_raw_request(self, method: str, params: Any, opts: Any = None) -> dict[str, Any]:
        if not self.can_send_request:
            raise NoBackChannelError(method)
        result: dict[str, Any] = await self._dispatcher.send_raw_request(method, params, opts)
        return result

    async def notify(self, method: str, params: Any, opts: Any = None) -> None:
        if self.can_send_request:  # not after the request is done
            await self._dispatcher.notify(method, params, opts)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        meta = self._params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        if isinstance(token, bool) or not isinstance(token, int | str):
            return
        params = {"progressToken": token, "progress": progress, "total": total, "message": message}
        await self.notify(
            "notifications/progress", {key: value for key, value in params.items() if value is not None}
        )
