"""What a tool can tell and ask the client whose request it answers, in both eras of the protocol.

Up to 2025-11-25 a server may ask its client while a call runs. From 2026-07-28 on it may not: it answers "input
required" with its questions, and the client sends the call again with the answers. Then the tool runs again from
its start, and each question that has an answer gets it at once. What was answered in earlier rounds travels in
`requestState`, which the layer above seals. A question is known by its key; without one, by its content, and by its
number among those with the same content, so that an answer never lands on another question.
"""

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping
from contextlib import nullcontext
from functools import cached_property
from typing import Any, Final

import anyio
import anyio.lowlevel
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from pydantic import BaseModel, ValidationError

from toolwire._protocol.json_codec import dumps, loads
from toolwire._protocol.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, ClientChannel, Interrupted, RpcError
from toolwire._support.log import logger_for
from toolwire._support.tasks import maybe_await, spawn
from toolwire.tools.context import LEVELS, reaches

logger = logger_for("serving")

_TURNS: Final = 3  # turns of the event loop in which further questions of the same call join a round

_GRACE: Final = 2.0  # seconds in which a tool that asked a stateless client may tidy up
_STUBBORN: Final = 3  # questions after the one that ended the call: whoever asks them will not stop by itself

_NO_SESSION: Final = (
    "This client cannot be asked: the server keeps no sessions (--workers, --stateless), which the client's "
    "version of MCP needs for that"
)

_Question = tuple[str, type[Any], type[BaseModel]]
_QUESTIONS: Final[Mapping[str, _Question]] = {
    "elicitation/create": ("elicitation", types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": ("sampling", types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": ("roots", types.ListRootsRequest, types.ListRootsResult),
}
_NOTICES: Final[Mapping[str, Any]] = {
    "notifications/progress": types.ProgressNotification,
    "notifications/message": types.LoggingMessageNotification,
}


class RequestChannel(ClientChannel):
    """The channel of one request. `level` is the log level of the client's session, None where there is none.

    `session` stands for that session, `request_scope` for the client within which a request id is used once. The
    call is to be run inside of `scope`, which ends it once it must.

    A call may begin before `mcp` has made anything of its request (`ctx` None). Then `declared` gives what the
    client can do, and `wanted` is called once the tool has something to tell or to ask: both wait for `bind`.
    `client_key` tells who the client is where it has no session; None where nobody knows.
    """

    def __init__(
        self,
        ctx: ServerRequestContext[Any, Any] | None,
        params: dict[str, Any],
        level: str | None,
        session: object = None,
        *,
        request_scope: str | None = None,
        declared: Callable[[], types.ClientCapabilities | None] = lambda: None,
        wanted: Callable[[], None] = lambda: None,
        client_key: Callable[[], Hashable] = lambda: None,
    ) -> None:
        self.session = session
        self._client_key = client_key
        self.request_scope = request_scope
        self.questions: dict[str, Any] | None = None
        """The "input required" result that the call has come to, if it has."""
        self._ctx = ctx
        self._declared = declared if ctx is None else lambda: ctx.session.client_capabilities
        self._wanted = wanted
        self._stateless = level is None
        self.scope: Any = anyio.CancelScope() if self._stateless else nullcontext()
        meta = (params.get("_meta") if ctx is None else ctx.meta) or {}
        self._level = meta.get(types.LOG_LEVEL_META_KEY) if level is None else level
        self._answers = _answers(params) if self._stateless else {}
        self._asked: dict[str, dict[str, Any]] = {}
        self._numbers: Counter[str] = Counter()
        self._late = 0
        self._outgoing: deque[Any] = deque()
        self._written: anyio.Event | None = None
        self._bound: anyio.Event | None = None
        self._closes_stream = False

    @cached_property
    def capabilities(self) -> dict[str, Any]:
        """What the client can be asked."""
        declared = self._declared()
        return {} if declared is None else declared.model_dump(by_alias=True, mode="json", exclude_none=True)

    def client_key(self) -> Hashable:
        return self._client_key()

    def bind(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """`mcp` has the request now: what waits for that goes out."""
        self._ctx = ctx
        if self._closes_stream:
            self.close_stream()
        if self._written is not None:
            spawn(self._write, self._written)
        if self._bound is not None:
            self._bound.set()

    async def _context(self) -> ServerRequestContext[Any, Any]:
        while self._ctx is None:
            self._bound = self._bound or anyio.Event()
            self._wanted()
            await self._bound.wait()
        return self._ctx

    def close_stream(self) -> None:
        """End the stream that the answer would come on; a client that can comes back for it."""
        if self._ctx is None:
            self._closes_stream = True
            self._wanted()
        elif self._ctx.close_sse_stream is not None:
            spawn(maybe_await, self._ctx.close_sse_stream())

    # Telling.

    def notify(self, message: dict[str, Any]) -> None:
        """Progress and log messages, in order; changes of lists go another way."""
        kind = _NOTICES.get(message["method"])
        if kind is None or (message["method"] == "notifications/message" and not self._hears(message)):
            return
        try:
            notice = kind.model_validate({"method": message["method"], "params": message["params"]})
        except ValidationError as error:
            logger.warning("%s cannot be sent: %s", message["method"], _first(error))
            return
        self._outgoing.append(notice)
        if self._written is None:
            self._written = anyio.Event()
            if self._ctx is None:
                self._wanted()
            else:
                spawn(self._write, self._written)

    def _hears(self, message: dict[str, Any]) -> bool:
        level = message["params"].get("level")
        # An unknown level is let through: that it cannot be sent is logged then.
        return reaches(level, self._level) or (self._level in LEVELS and level not in LEVELS)

    async def _write(self, written: anyio.Event) -> None:
        try:
            while self._outgoing:
                await self._sent(self._outgoing.popleft())
        finally:
            self._written = None
            written.set()

    async def _sent(self, notice: Any) -> None:
        ctx = await self._context()
        try:
            await ctx.session.send_notification(notice, related_request_id=ctx.request_id)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            logger.debug("%s: the client has left", notice.method)
        except Exception as error:  # noqa: BLE001 - one that cannot be written must not take the others along
            logger.warning("%s could not be sent: %s: %s", notice.method, type(error).__name__, error)

    async def flushed(self) -> None:
        """Wait until all that was told is on its way: the answer comes after it."""
        while self._written is not None:
            await self._written.wait()

    # Asking.

    async def request(
        self, method: str, params: dict[str, Any], *, key: str | None = None, repeatable: bool = True
    ) -> dict[str, Any]:
        """Send a request to the client; in the stateless era the call may end here."""
        capability, request, result = _QUESTIONS[method]
        self._check(capability, params)
        if params.get("tools"):
            result = types.CreateMessageResultWithTools
        try:
            question = request.model_validate({"method": method, "params": params})
        except ValidationError as error:
            raise RpcError(INVALID_PARAMS, f"{method}: {_first(error)}") from None
        if self._stateless:
            return await self._from_rounds(method, params, key, result, repeatable)
        ctx = await self._context()
        await self.flushed()
        try:
            answer = await ctx.session.send_request(
                question, result, metadata=ServerMessageMetadata(related_request_id=ctx.request_id)
            )
        except NoBackChannelError:
            raise RpcError(INVALID_REQUEST, _NO_SESSION) from None
        except MCPError as error:
            raise RpcError(error.error.code, error.error.message, error.error.data) from error
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)

    def _check(self, capability: str, params: dict[str, Any]) -> None:
        mode = (params.get("mode") or "form") if capability == "elicitation" else None
        if not self._stateless and self._declared() is None:
            raise RpcError(INVALID_REQUEST, _NO_SESSION)
        declared = self.capabilities.get(capability)
        if declared is not None and (mode is None or mode in declared or (mode == "form" and not declared)):
            return
        # To declare nothing in particular means forms, so that is all it takes to be asked some.
        special = mode == "url" or (mode == "form" and declared is not None)
        needed: dict[str, Any] = {capability: {mode: {}} if special else {}}
        what = f"{capability}.{mode}" if special else capability
        raise RpcError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            f"This needs a client with {what}, which this one does not declare",
            {"requiredCapabilities": needed},
        )

    async def _from_rounds(
        self, method: str, params: dict[str, Any], key: str | None, result: type[BaseModel], repeatable: bool
    ) -> dict[str, Any]:
        if self.questions is not None:
            self._late += 1
            if self._late >= _STUBBORN:
                self.scope.cancel()
            await anyio.lowlevel.checkpoint()
            raise Interrupted
        if not key:
            content = f"{method.partition('/')[0]}-{_digest(params)}"
            self._numbers[content] += 1
            key = f"{content}-{self._numbers[content]}"
        if key in self._answers:
            return self._answer(key, result)
        if not repeatable:
            text = (
                "This tool must not run twice, and with this client's version of MCP an answer runs it again"
            )
            raise RpcError(
                INVALID_REQUEST, f"{text}; use a client that keeps a session (2025-11-25 or older)"
            )
        self._asked[key] = {"method": method, "params": params}
        for _ in range(_TURNS):
            await anyio.lowlevel.checkpoint()
        self.questions = {
            "resultType": "input_required",
            "inputRequests": self._asked,
            "requestState": dumps(self._answers).decode(),
        }
        self.scope.deadline = anyio.current_time() + _GRACE
        raise Interrupted

    def _answer(self, key: str, result: type[BaseModel]) -> dict[str, Any]:
        answer = self._answers[key]
        try:
            result.model_validate(answer, by_name=False)
        except ValidationError as error:
            raise RpcError(INVALID_PARAMS, f"inputResponses[{key!r}]: {_first(error)}") from None
        found: dict[str, Any] = answer
        return found


def _answers(params: dict[str, Any]) -> dict[str, Any]:
    """What is answered already, taken out of a request: in earlier rounds, and in this one."""
    state, given = params.pop("requestState", None), params.pop("inputResponses", None)
    try:
        before = loads(state.encode()) if isinstance(state, str) else {}
    except ValueError:
        raise MCPError(code=INVALID_PARAMS, message="Invalid or expired requestState") from None
    return {**before, **(given if isinstance(given, dict) else {})}


def _digest(params: dict[str, Any]) -> str:
    return hashlib.sha256(dumps(params, sort_keys=True)).hexdigest()[:12]


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
