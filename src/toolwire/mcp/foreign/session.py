"""One MCP session with a server of another library, in this process.

Owns the stream pair, the task in which the server runs, the calls that are open on it and what the server asks in
turn. Ids and progress tokens inside are fresh ones, because the client repeats its own. It must not know how a
message came in, nor what `initialize` means.
"""

import itertools
import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
import anyio.abc

from toolwire._protocol.jsonrpc import CANCELLED, INTERNAL_ERROR, ClientChannel, Id, Request, RpcError
from toolwire._support.log import logger_for
from toolwire._support.tasks import spawn
from toolwire.mcp.foreign.dispatch import Lane, Passage, has_lane
from toolwire.mcp.foreign.mcp_messages import GOING_DOWN, Envelopes
from toolwire.mcp.streams import Inbox, Outbox

logger = logger_for("mcp")

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]

_FORCE: Final = 1.0  # seconds of the grace that are kept for cancelling by force


@dataclass(slots=True)
class _Call:
    """A request of the client. It is open for as long as it is in the table."""

    id: Id
    token: Any
    passage: Passage | None = None
    settled: anyio.Event = field(default_factory=anyio.Event)
    outcome: Any = None


class Session:
    """A running server. `core` is the low-level one of `mcp` 2.x; it runs inside `lifespan(core)`."""

    def __init__(self, core: Any, channel: ClientChannel, lifespan: Lifespan) -> None:
        self.over = False
        """Whether the server has ended: nothing more will be answered."""
        self._core = core
        self._channel = channel
        self._lifespan = lifespan
        self._envelopes = Envelopes()
        self._inbox = Inbox()
        self._outbox = Outbox(self._deliver)
        self._lane: Lane | None = None  # while the server runs
        self._calls: dict[int, _Call] = {}
        self._ids = itertools.count(1)
        self._questions: dict[Id, anyio.CancelScope] = {}
        self._group: anyio.abc.TaskGroup | None = None
        self._begun = False  # a task that is cancelled before its first step never gets to its end
        self._stopping = False
        self._reason = "it ended by itself"
        self._ended = anyio.Event()
        self._task = spawn(self._run)

    # What the client does.

    async def call(self, request: Request) -> Any:
        """The server's result. `RpcError` if it refuses, is cancelled, or ends before it has answered."""
        inside = next(self._ids)
        params, token = _inward(request.params, inside)
        call = self._calls[inside] = _Call(request.id, token)
        if self._lane is not None and self._inbox.idle and request.method != "initialize":
            call.passage = self._lane.start(inside, request.method, params)
        else:  # not before what was sent earlier
            self._inbox.put(self._envelopes.request(inside, request.method, params))
        try:
            await call.settled.wait()
        finally:
            if self._calls.pop(inside, None) is not None:
                self._withdraw(call, {"requestId": inside, "reason": "nobody waits any more"})
        if isinstance(call.outcome, RpcError):
            raise call.outcome
        return call.outcome

    def tell(self, method: str, params: dict[str, Any]) -> None:
        """Pass a notification on. Never waits."""
        self._inbox.put(self._envelopes.notification(method, params))

    def cancel(self, params: dict[str, Any]) -> None:
        """Cancel the newest open call with the client's id, and answer it: the server will not."""
        wanted = params.get("requestId")
        for inside, call in reversed(self._calls.items()):
            if call.id == wanted and not isinstance(wanted, bool):
                self._withdraw(call, {**params, "requestId": inside})
                self._settle(inside, RpcError(CANCELLED, "Request cancelled"))
                return
        logger.debug("nothing is open under the id %r that was cancelled", wanted)

    def _withdraw(self, call: _Call, params: dict[str, Any]) -> None:
        if call.passage is not None:
            call.passage.cancel()
        self.tell("notifications/cancelled", params)

    def stopped(self) -> RpcError:
        """What to say to a call that cannot be answered any more."""
        return RpcError(INTERNAL_ERROR, f"the MCP server {self._name} stopped: {self._reason}")

    def end(self) -> None:
        """Begin the end: open calls are answered, what runs is told to stop."""
        self._stopping = True
        for inside, call in list(self._calls.items()):
            if call.passage is not None:
                call.passage.cancel()
            self._settle(inside, RpcError(CANCELLED, "Request cancelled: the connection was closed"))
        # The end of its input tells a server to stop: it cancels its handlers and leaves its lifespan in peace.
        self._inbox.close()
        self._outbox.close()

    async def ended(self, grace: float) -> None:
        """Wait for the end. What does not stop by itself is cancelled, and after `grace` seconds left alone."""
        if self._inbox.read_from:
            await self._wait(max(grace - _FORCE, grace / 2))
        if self._begun and not self._ended.is_set():
            self._task.cancel()
        await self._wait(min(_FORCE, grace / 2))
        if not self._ended.is_set():
            logger.warning("the MCP server %s does not heed its cancellation: left to itself", self._name)

    async def _wait(self, seconds: float) -> None:
        with anyio.move_on_after(seconds, shield=True):
            await self._ended.wait()

    # The server's task.

    async def _run(self) -> None:
        self._begun = True
        try:
            if not self._stopping:
                async with self._lifespan(self._core), anyio.create_task_group() as self._group:
                    await self._serve(self._core.create_initialization_options())
                    self._group.cancel_scope.cancel()
        except Exception as error:  # the boundary of the server's task: the answer to all that is open
            cause = _root(error)
            self._reason = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
            logger.error("the MCP server %s stopped", self._name, exc_info=cause)  # noqa: TRY400 - the cause only
        finally:
            self.over = True
            for inside in list(self._calls):
                self._settle(inside, self.stopped())
            self._ended.set()

    async def _serve(self, options: Any) -> None:
        if not has_lane(self._core):
            await self._core.run(self._inbox, self._outbox, options)
            return
        lane = Lane(self._core, self._on_done)
        try:
            await lane.run(self._inbox, self._outbox, options, partial(setattr, self, "_lane", lane))
        finally:
            self._lane = None

    @property
    def _name(self) -> str:
        return repr(getattr(self._core, "name", type(self._core).__name__))

    # What the server sends. Synchronous, in whichever of its tasks it sends from.

    def _on_done(self, inside: int, outcome: Any) -> None:
        try:
            self._on_reply(self._envelopes.answer(inside, outcome))
        except ValueError as error:  # as below
            self._settle(inside, self._unwritable(error))

    def _deliver(self, item: Any) -> bool:
        try:
            message = item.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
        except ValueError as error:  # pydantic's, for a value that JSON has no form for
            self._on_unwritable(item.message, self._unwritable(error))
            return False
        if "method" not in message:
            self._on_reply(message)
            return False
        if "id" in message:
            self._on_question(message)
        else:
            _NOTICES.get(message["method"], Session._on_notice)(self, message)
        return True

    def _unwritable(self, error: ValueError) -> RpcError:
        problem = f"the MCP server {self._name} sent what is not JSON: {error}"
        logger.warning("%s", problem)
        return RpcError(INTERNAL_ERROR, problem)

    def _on_unwritable(self, message: Any, refused: RpcError) -> None:
        if not hasattr(message, "method"):
            self._settle(message.id, refused)
        elif hasattr(message, "id"):
            self._inbox.put(self._envelopes.error(message.id, refused))

    def _on_reply(self, message: dict[str, Any]) -> None:
        error = message.get("error")
        if error is None:
            self._settle(message["id"], message["result"])
            return
        # mcp gives the code 0 to whatever a handler raises; everywhere else that is an internal error.
        refused = RpcError(error["code"] or INTERNAL_ERROR, error["message"], error.get("data"))
        if error["code"] == GOING_DOWN and self._group is not None:
            self._group.start_soon(self._settle_if_alive, message["id"], refused)
        else:
            self._settle(message["id"], refused)

    async def _settle_if_alive(self, inside: Any, refused: RpcError) -> None:
        with suppress(RpcError):
            await self.call(Request(math.nan, "ping", {}))  # an id that no cancellation can mean
        self._settle(inside, refused)

    def _settle(self, inside: Any, outcome: Any) -> None:
        call = self._calls.pop(inside, None)
        if call is not None:
            call.outcome = outcome
            call.settled.set()

    def _on_notice(self, message: dict[str, Any]) -> None:
        try:
            self._channel.notify(message)
        except Exception:  # the boundary of the client: no tool fails because its log line could not be shown
            logger.exception("a notification of the MCP server %s was lost", self._name)

    def _on_progress(self, message: dict[str, Any]) -> None:
        params = message.get("params") or {}
        token = params.get("progressToken")
        call = self._calls.get(token) if type(token) is int else None
        if call is None or call.token is None:
            logger.debug("progress for no open call: dropped")
        else:
            self._on_notice({**message, "params": {**params, "progressToken": call.token}})

    def _on_question(self, message: dict[str, Any]) -> None:
        if self._group is not None:
            scope = self._questions[message["id"]] = anyio.CancelScope()
            self._group.start_soon(self._ask, scope, message)

    def _on_withdrawal(self, message: dict[str, Any]) -> None:
        asked = (message.get("params") or {}).get("requestId")
        scope = self._questions.get(asked) if isinstance(asked, int | str) else None
        if scope is not None:
            scope.cancel()

    async def _ask(self, scope: anyio.CancelScope, message: dict[str, Any]) -> None:
        with scope:
            try:
                result = await self._channel.request(message["method"], message.get("params", {}))
                answer = self._envelopes.result(message["id"], result)
            except RpcError as error:
                answer = self._envelopes.error(message["id"], error)
            except Exception as error:  # the boundary of the host's callback: the server must hear of it
                logger.exception("answering %s of the MCP server %s failed", message["method"], self._name)
                failed = RpcError(INTERNAL_ERROR, str(error) or type(error).__name__)
                answer = self._envelopes.error(message["id"], failed)
            finally:
                self._questions.pop(message["id"], None)
            self._inbox.put(answer)


_NOTICES: Final[dict[str, Callable[[Session, dict[str, Any]], None]]] = {
    "notifications/progress": Session._on_progress,  # noqa: SLF001 - the table of this class
    "notifications/cancelled": Session._on_withdrawal,  # noqa: SLF001
}


def _inward(params: dict[str, Any], inside: int) -> tuple[dict[str, Any], Any]:
    """The params as the server gets them, and the client's progress token (None if it has none)."""
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        return params, None
    token = meta.get("progressToken")
    if isinstance(token, bool) or not isinstance(token, int | float | str):
        return params, None
    return {**params, "_meta": {**meta, "progressToken": inside}}, token


def _root(error: BaseException) -> BaseException:
    """What is inside groups of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
