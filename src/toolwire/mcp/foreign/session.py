"""One MCP session with a server of another library, in this process.

Owns the stream pair, the task in which the server runs, the pending calls, the server's own requests, and the
conversion from dicts to `mcp`'s message objects and back. The server gets new ids and progress tokens, because the
client reuses its own. Must not know how a message was received, nor what `initialize` means. It validates nothing:
requests were checked before, and the server checks the params of its methods.
"""

import itertools
import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.abc
from pydantic_core import to_jsonable_python

from mcp import types
from toolwire._protocol.jsonrpc import (
    CANCELLED,
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    ClientChannel,
    Id,
    Request,
    RpcError,
)
from toolwire._support.log import logger_for
from toolwire._support.tasks import spawn
from toolwire.mcp.compat import SessionMessage, make_message, uses_standard_run
from toolwire.mcp.streams import Inbox, Outbox

if TYPE_CHECKING:
    from toolwire.mcp.foreign.direct import DirectDispatch, RequestContext

logger = logger_for("mcp")

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]

_CANCEL_TIMEOUT: Final = 1.0  # seconds of the grace period that are reserved for cancelling the server's task
_NOT_A_RESULT: Final = (BaseException, types.ErrorData)


@dataclass(slots=True)
class _Call:
    """A request of the client. It is pending for as long as it is in the table."""

    id: Id
    token: Any
    context: "RequestContext | None" = None
    done: anyio.Event = field(default_factory=anyio.Event)
    outcome: Any = None


class ForeignSession:
    """A running server. `low_level` is a low-level server of `mcp`; it runs inside `lifespan(low_level)`."""

    def __init__(self, low_level: Any, channel: ClientChannel, lifespan: Lifespan) -> None:
        self.over = False
        """True when the server has ended: it will not respond any more."""
        self._low_level = low_level
        self._channel = channel
        self._lifespan = lifespan
        self._inbox = Inbox()
        self._outbox = Outbox(self._receive)
        self._direct: DirectDispatch | None = None  # while the server runs
        self._calls: dict[int, _Call] = {}
        self._ids = itertools.count(1)
        self._requests: dict[Id, anyio.CancelScope] = {}  # pending requests of the server
        self._group: anyio.abc.TaskGroup | None = None
        self._begun = False  # a task that is cancelled before its first step never runs its `finally`
        self._closing = False
        self._reason = "it ended by itself"
        self._ended = anyio.Event()
        self._task = spawn(self._run)

    # From the client.

    async def call(self, request: Request) -> Any:
        """Return the server's result. Raises `RpcError` if it refuses, is cancelled, or ends without a response."""
        inner_id = next(self._ids)
        params, token = _replace_token(request.params, inner_id)
        call = self._calls[inner_id] = _Call(request.id, token)
        if self._direct is not None and self._inbox.idle and request.method != "initialize":
            call.context = self._direct.start(inner_id, request.method, params)
        else:  # behind the messages that were sent earlier
            self._inbox.put(
                make_message(types.JSONRPCRequest, id=inner_id, method=request.method, params=params or None)
            )
        try:
            await call.done.wait()
        finally:
            if self._calls.pop(inner_id, None) is not None:
                self._cancel(call, {"requestId": inner_id, "reason": "the caller was cancelled"})
        if isinstance(call.outcome, RpcError):
            raise call.outcome
        return call.outcome

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification to the server. Never waits."""
        self._inbox.put(make_message(types.JSONRPCNotification, method=method, params=params or None))

    def cancel(self, params: dict[str, Any]) -> None:
        """Cancel the newest pending call with the client's id, and respond to it, since the server will not."""
        wanted = params.get("requestId")
        for inner_id, call in reversed(self._calls.items()):
            if call.id == wanted and not isinstance(wanted, bool):
                self._cancel(call, {**params, "requestId": inner_id})
                self._finish(inner_id, RpcError(CANCELLED, "Request cancelled"))
                return
        logger.debug("ignored a cancellation: no call with the id %r is pending", wanted)

    def _cancel(self, call: _Call, params: dict[str, Any]) -> None:
        if call.context is not None:
            call.context.cancel()
        self.notify("notifications/cancelled", params)

    def stopped_error(self) -> RpcError:
        """Return the error for a call to a server that has stopped."""
        return RpcError(INTERNAL_ERROR, f"the MCP server {self._name} stopped: {self._reason}")

    def close(self) -> None:
        """Start to end the session: pending calls get an error, and running handlers are cancelled."""
        self._closing = True
        for inner_id, call in list(self._calls.items()):
            if call.context is not None:
                call.context.cancel()
            self._finish(inner_id, RpcError(CANCELLED, "Request cancelled: the connection was closed"))
        # A server stops at the end of its input: it cancels its handlers and leaves its lifespan.
        self._inbox.close()
        self._outbox.close()

    async def wait_closed(self, grace: float) -> None:
        """Wait until the server has ended.

        A server that does not stop by itself is cancelled, and abandoned after `grace` seconds.
        """
        if self._inbox.has_reader:
            await self._wait(max(grace - _CANCEL_TIMEOUT, grace / 2))
        if self._begun and not self._ended.is_set():
            self._task.cancel()
        await self._wait(min(_CANCEL_TIMEOUT, grace / 2))
        if not self._ended.is_set():
            logger.warning("the MCP server %s ignores its cancellation and is abandoned", self._name)

    async def _wait(self, seconds: float) -> None:
        with anyio.move_on_after(seconds, shield=True):
            await self._ended.wait()

    # The server's task.

    async def _run(self) -> None:
        self._begun = True
        try:
            if not self._closing:
                async with self._lifespan(self._low_level), anyio.create_task_group() as self._group:
                    await self._serve(self._low_level.create_initialization_options())
                    self._group.cancel_scope.cancel()
        except Exception as error:  # the boundary of the server's task: all pending calls get this error
            cause = _unwrap(error)
            self._reason = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
            logger.error("the MCP server %s stopped", self._name, exc_info=cause)  # noqa: TRY400 - the cause only
        finally:
            self.over = True
            for inner_id in list(self._calls):
                self._finish(inner_id, self.stopped_error())
            self._ended.set()

    async def _serve(self, options: Any) -> None:
        if not uses_standard_run(self._low_level):
            await self._low_level.run(self._inbox, self._outbox, options)
            return
        from toolwire.mcp.foreign.direct import DirectDispatch  # noqa: PLC0415 - not possible with mcp 1.x

        direct = DirectDispatch(self._low_level, self._on_done)
        try:
            await direct.run(self._inbox, self._outbox, options, partial(setattr, self, "_direct", direct))
        finally:
            self._direct = None

    @property
    def _name(self) -> str:
        return repr(getattr(self._low_level, "name", type(self._low_level).__name__))

    # From the server. Synchronous, in the task of the server that sends.

    def _on_done(self, inner_id: int, outcome: Any) -> None:
        """Handle the result, error or exception of a handler that was called directly."""
        if not isinstance(outcome, _NOT_A_RESULT):
            try:
                self._finish(inner_id, to_jsonable_python(outcome, inf_nan_mode="null"))
            except ValueError as error:  # from pydantic, for a value that JSON cannot represent
                self._finish(inner_id, self._not_json(error))
        elif isinstance(outcome, types.ErrorData):
            self._on_error(inner_id, outcome.model_dump(mode="json", by_alias=True, exclude_unset=True))
        elif isinstance(outcome, Exception):
            # A failure, not an error response: the author of the handler wants the traceback.
            logger.error("a handler of an MCP server failed", exc_info=outcome)
            self._on_error(inner_id, {"code": INTERNAL_ERROR, "message": str(outcome)})
        else:  # the task of the handler was cancelled
            self._on_error(inner_id, {"code": CONNECTION_CLOSED, "message": "Connection closed"})

    def _receive(self, item: Any) -> bool:
        """Handle a message of the server. Returns True if the sender should let other tasks run."""
        try:
            message = item.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
        except ValueError as error:  # as above
            self._on_not_json(item.message, self._not_json(error))
            return False
        if "method" not in message:
            if message.get("error") is None:
                self._finish(message["id"], message["result"])
            else:
                self._on_error(message["id"], message["error"])
            return False
        if "id" in message:
            self._on_request(message)
        else:
            _NOTIFICATIONS.get(message["method"], ForeignSession._on_notification)(self, message)
        return True

    def _not_json(self, error: ValueError) -> RpcError:
        problem = f"the MCP server {self._name} sent a message that is not JSON: {error}"
        logger.warning("%s", problem)
        return RpcError(INTERNAL_ERROR, problem)

    def _on_not_json(self, message: Any, error: RpcError) -> None:
        message = getattr(message, "root", message)
        if not hasattr(message, "method"):
            self._finish(message.id, error)
        elif hasattr(message, "id"):
            self._inbox.put(_error_message(message.id, error))

    def _on_error(self, inner_id: Any, error: dict[str, Any]) -> None:
        # mcp gives the code 0 to exceptions of a handler; everywhere else that is an internal error.
        outcome = RpcError(error["code"] or INTERNAL_ERROR, error["message"], error.get("data"))
        # A server that stops sends this code to all pending requests; but a tool may also send it.
        if error["code"] == CONNECTION_CLOSED and self._group is not None:
            self._group.start_soon(self._finish_if_alive, inner_id, outcome)
        else:
            self._finish(inner_id, outcome)

    async def _finish_if_alive(self, inner_id: Any, outcome: RpcError) -> None:
        """Finish a call with "connection closed", unless the server stops: then the reason for that is used."""
        with suppress(RpcError):
            await self.call(Request(math.nan, "ping", {}))  # no cancellation can have this id
        self._finish(inner_id, outcome)

    def _finish(self, inner_id: Any, outcome: Any) -> None:
        call = self._calls.pop(inner_id, None)
        if call is not None:
            call.outcome = outcome
            call.done.set()

    def _on_notification(self, message: dict[str, Any]) -> None:
        try:
            self._channel.notify(message)
        except Exception:  # the boundary of the client: a tool must not fail because its log line was lost
            logger.exception("a notification of the MCP server %s was lost", self._name)

    def _on_progress(self, message: dict[str, Any]) -> None:
        params = message.get("params") or {}
        token = params.get("progressToken")
        call = self._calls.get(token) if type(token) is int else None
        if call is None or call.token is None:
            logger.debug("dropped progress for a call that is not pending")
        else:
            self._on_notification({**message, "params": {**params, "progressToken": call.token}})

    def _on_request(self, message: dict[str, Any]) -> None:
        if self._group is not None:
            scope = self._requests[message["id"]] = anyio.CancelScope()
            self._group.start_soon(self._answer, scope, message)

    def _on_cancelled(self, message: dict[str, Any]) -> None:
        request_id = (message.get("params") or {}).get("requestId")
        scope = self._requests.get(request_id) if isinstance(request_id, int | str) else None
        if scope is not None:
            scope.cancel()

    async def _answer(self, scope: anyio.CancelScope, message: dict[str, Any]) -> None:
        """Send a request of the server to the client, and its response back to the server."""
        with scope:
            try:
                result: Any = await self._channel.request(message["method"], message.get("params", {}))
                response = _result_message(message["id"], result)
            except RpcError as error:
                response = _error_message(message["id"], error)
            except Exception as error:  # the boundary of the host's callback: the server must get a response
                logger.exception("answering %s of the MCP server %s failed", message["method"], self._name)
                failure = RpcError(INTERNAL_ERROR, str(error) or type(error).__name__)
                response = _error_message(message["id"], failure)
            finally:
                self._requests.pop(message["id"], None)
            self._inbox.put(response)


_NOTIFICATIONS: Final[dict[str, Callable[[ForeignSession, dict[str, Any]], None]]] = {
    "notifications/progress": ForeignSession._on_progress,  # noqa: SLF001 - the table of this class
    "notifications/cancelled": ForeignSession._on_cancelled,  # noqa: SLF001
}


def _result_message(request_id: Id, result: Any) -> SessionMessage:
    if not isinstance(result, dict):
        problem = f"the result must be an object, got {type(result).__name__}"
        return _error_message(request_id, RpcError(INTERNAL_ERROR, problem))
    return make_message(types.JSONRPCResponse, id=request_id, result=result)


def _error_message(request_id: Id, error: RpcError) -> SessionMessage:
    body = types.ErrorData.model_construct(code=error.code, message=error.message, data=error.data)
    return make_message(types.JSONRPCError, id=request_id, error=body)


def _replace_token(params: dict[str, Any], inner_id: int) -> tuple[dict[str, Any], Any]:
    """Replace the client's progress token by our id.

    Returns the new params, and the client's token or None.
    """
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        return params, None
    token = meta.get("progressToken")
    if isinstance(token, bool) or not isinstance(token, int | float | str):
        return params, None
    return {**params, "_meta": {**meta, "progressToken": inner_id}}, token


def _unwrap(error: BaseException) -> BaseException:
    """Return the exception inside groups of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
