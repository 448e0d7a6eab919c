"""Requests straight to the handlers of an `mcp` server, past the queues and envelopes of its session.

`Server.run` wraps each request and each answer in a checked message, and passes it through two queues on the way
in. Here the parts that `run` is made of are put together with one more way in: a request is given to the server's
kernel at once, in a task and the context variables of the server. The handshake, notifications and what the server
asks go through `mcp`'s own dispatcher as ever. It must not know what a call is to the client.
"""

from collections.abc import Callable, Mapping
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from toolwire._support.tasks import scope_type, spawn

if TYPE_CHECKING:
    from mcp.shared.transport_context import TransportContext

Settle = Callable[[int, Any], None]
"""Takes the result or the exception of a request, under its id."""


def has_lane(core: Any) -> bool:
    """Whether a server runs as `mcp` has it, so that its parts may be put together here."""
    try:
        from mcp.server.lowlevel import Server  # noqa: PLC0415 - as in `envelopes`
        from mcp.server.runner import ServerRunner, aclose_shielded  # noqa: F401, PLC0415
    except ImportError:  # a version of mcp that is built in another way
        return False
    return getattr(core.run, "__func__", None) is Server.run


class Lane:
    """The way to one running server. `settle` is called, in a task of the server, when a request is done."""

    def __init__(self, core: Any, settle: Settle) -> None:
        self._core = core
        self._settle = settle
        self._open: set[Passage] = set()
        self._idle: anyio.Event | None = None  # when the end waits for the last one

    async def run(self, inbox: Any, outbox: Any, options: Any, opened: Callable[[], None]) -> None:
        """Serve until the inbox ends. `opened` is called when requests can be taken."""
        from mcp.server.connection import Connection  # noqa: PLC0415 - as in `envelopes`
        from mcp.server.runner import ServerRunner, aclose_shielded  # noqa: PLC0415
        from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher  # noqa: PLC0415
        from mcp.shared.transport_context import TransportContext  # noqa: PLC0415

        async with self._core.lifespan(self._core) as state:
            # What comes after `initialize` waits for its answer, as in mcp's own loops.
            dispatcher = JSONRPCDispatcher(inbox, outbox, inline_methods=frozenset({"initialize"}))
            connection = Connection.for_loop(dispatcher)
            kernel = ServerRunner(self._core, connection, state, init_options=options)
            self._back = dispatcher
            self._transport = TransportContext(kind="jsonrpc", can_send_request=True)
            self._context = copy_context()
            self._scope = scope_type()
            self._answer = kernel.on_request
            try:
                opened()
                await dispatcher.run(kernel.on_request, kernel.on_notify)
            finally:
                await self._end()
                await aclose_shielded(connection)

    def start(self, request_id: int, method: str, params: dict[str, Any]) -> "Passage":
        """Begin a request. Never waits."""
        passage = Passage(self._back, self._transport, request_id, params, self._scope())
        self._open.add(passage)
        # No task group: to start one of its tasks costs as much as all the rest of the way here.
        self._context.run(
            partial(spawn, self._pass, passage, method, params or None, on_done=partial(self._gone, passage))
        )
        return passage

    def _gone(self, passage: "Passage") -> None:
        self._open.discard(passage)
        if self._idle is not None and not self._open:
            self._idle.set()

    async def _end(self) -> None:
        """Cancel what runs, and wait until it has ended: the lifespan must outlast it, even if we are cancelled."""
        for passage in self._open:
            passage.cancel()
        cancelled: BaseException | None = None
        while self._open:
            self._idle = anyio.Event()
            try:
                with anyio.CancelScope(shield=True):
                    await self._idle.wait()
            except anyio.get_cancelled_exc_class() as error:  # asyncio knows no shield
                cancelled = error
        if cancelled is not None:
            raise cancelled

    async def _pass(self, passage: "Passage", method: str, params: dict[str, Any] | None) -> None:
        try:
            with passage.scope:
                try:
                    result = await self._answer(passage, method, params)
                finally:
                    passage.can_send_request = False
                self._settle(passage.request_id, result)
        except BaseException as error:  # the boundary of a handler: what it raised is the answer
            self._settle(passage.request_id, error)
            if not isinstance(error, Exception):
                raise


class Passage:
    """One request on its way: what `mcp` calls a dispatch context, the back-channel of a handler."""

    message_metadata = None

    def __init__(
        self,
        back: Any,
        transport: "TransportContext",
        request_id: int,
        params: Mapping[str, Any],
        scope: anyio.CancelScope,
    ) -> None:
        self.transport = transport
        self.request_id = request_id
        self.can_send_request = True
        self.scope = scope
        self._back = back
        self._params = params
        self._cancelled = False
        self._cancel_requested: anyio.Event | None = None

    def cancel(self) -> None:
        """Interrupt the handler."""
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
            from mcp.shared.exceptions import NoBackChannelError  # noqa: PLC0415 - as in `envelopes`

            raise NoBackChannelError(method)
        answer: dict[str, Any] = await self._back.send_raw_request(method, params, opts)
        return answer

    async def notify(self, method: str, params: Any, opts: Any = None) -> None:
        if self.can_send_request:  # a request that is done has nothing more to say
            await self._back.notify(method, params, opts)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        meta = self._params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        if isinstance(token, bool) or not isinstance(token, int | str):
            return
        said = {"progressToken": token, "progress": progress, "total": total, "message": message}
        await self.notify(
            "notifications/progress", {key: value for key, value in said.items() if value is not None}
        )
