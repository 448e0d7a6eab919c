"""The channels from a server to its clients: to the client whose request is handled, and to all connected clients.

Up to 2025-11-25 a server may send requests to its client while a call runs. From 2026-07-28 on it may not: the call
ends with the result "input required", which contains the requests, and the client calls again with the responses.
The tool then runs again from its start, and each request that has a response gets it at once. Responses of earlier
rounds are carried in `requestState`, which the layer above seals. A request is identified by its key; without one,
by its content and its number among those with the same content, so that a response is never given to another
request.

Notifications that belong to no request are sent to all clients that want them (`ClientRegistry`): to those with a
session according to its log level and subscriptions, to those of 2026-07-28 over the stream on which they listen.
Must not know how requests are handled.
"""

import hashlib
import secrets
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

import anyio
import anyio.lowlevel
import mcp_types as types
from mcp.server import ServerRequestContext
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ValidationError

from toolwire._protocol.json_codec import dumps, loads
from toolwire._protocol.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, ClientChannel, Interrupted, RpcError
from toolwire._support.log import logger_for
from toolwire._support.tasks import maybe_await, spawn
from toolwire.mcp.compat import (
    AuthenticatedUser,
    ClientConnection,
    NoBackChannelError,
    ServerMessageMetadata,
    authorization_context,
    connection_of,
)
from toolwire.tools.context import LEVELS, reaches

logger = logger_for("serving")

_JOIN_TURNS: Final = 3  # turns of the event loop in which further requests of the same call join a round
_CLEANUP_TIMEOUT: Final = 2.0  # seconds that a tool has to clean up after its call has ended for a round
_MAX_LATE_REQUESTS: Final = 3  # requests after the end of a round: a tool that sends more is cancelled

_NO_SESSION: Final = (
    "This client cannot receive requests: its version of MCP needs a session for them, and the server keeps none "
    "(--workers, --stateless)"
)

_REQUESTS: Final[Mapping[str, tuple[str, type[Any], type[BaseModel]]]] = {  # capability, params, result
    "elicitation/create": ("elicitation", types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": ("sampling", types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": ("roots", types.ListRootsRequest, types.ListRootsResult),
}
_NOTIFICATIONS: Final[Mapping[str, Any]] = {
    "notifications/progress": types.ProgressNotification,
    "notifications/message": types.LoggingMessageNotification,
}


class RequestChannel(ClientChannel):
    """The channel of one request. `level` is the log level of the client's session, None without a session.

    The call must run inside `scope`, which cancels it if it does not end by itself after "input required".

    A call may start before `mcp` has its request (`ctx` None). Then `declared` returns the client's capabilities,
    and `on_used` is called when the tool sends something, which has to wait for `bind`.
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
        on_used: Callable[[], None] = lambda: None,
        client_key: Callable[[], Hashable] = lambda: None,
        announce: Callable[[], None] = lambda: None,
    ) -> None:
        """`announce` notifies the only client, if it has no session, that its list of tools has changed."""
        self.session = session
        self.request_scope = request_scope
        self.server_wide = session is None  # `ClientRegistry` notifies those with a session
        self.input_required: dict[str, Any] | None = None
        """The "input required" result of the call, once the tool has sent a request to a stateless client."""
        self._client_key = client_key
        self._announce = announce
        self._ctx = ctx
        self._declared = declared if ctx is None else lambda: ctx.session.client_capabilities
        self._on_used = on_used
        self._stateless = level is None
        self.scope: Any = anyio.CancelScope() if self._stateless else nullcontext()
        meta = (params.get("_meta") if ctx is None else ctx.meta) or {}
        self._level = meta.get(types.LOG_LEVEL_META_KEY) if level is None else level
        self._responses = _take_responses(params) if self._stateless else {}
        self._requests: dict[str, dict[str, Any]] = {}  # of this round, by key
        self._repeats: Counter[str] = Counter()
        self._late_requests = 0
        self._outgoing: deque[Any] = deque()
        self._written: anyio.Event | None = None  # while notifications are being written
        self._bound: anyio.Event | None = None  # while something waits for `bind`
        self._close_requested = False

    @cached_property
    def capabilities(self) -> dict[str, Any]:
        declared = self._declared()
        return {} if declared is None else declared.model_dump(by_alias=True, mode="json", exclude_none=True)

    def client_key(self) -> Hashable:
        return self._client_key()

    def bind(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """Send everything that has waited for `mcp` to have the request."""
        self._ctx = ctx
        if self._close_requested:
            self.close_stream()
        if self._written is not None:
            spawn(self._write, self._written)
        if self._bound is not None:
            self._bound.set()

    async def _context(self) -> ServerRequestContext[Any, Any]:
        while self._ctx is None:
            self._bound = self._bound or anyio.Event()
            self._on_used()
            await self._bound.wait()
        return self._ctx

    def close_stream(self) -> None:
        if self._ctx is None:
            self._close_requested = True
            self._on_used()
        elif self._ctx.close_sse_stream is not None:
            spawn(maybe_await, self._ctx.close_sse_stream())

    # Notifications.

    def notify(self, message: dict[str, Any]) -> None:
        """Send progress and log messages, in order. The registry sends changes of lists."""
        kind = _NOTIFICATIONS.get(message["method"])
        if kind is None or (message["method"] == "notifications/message" and not self._wants_log(message)):
            return
        try:
            notification = kind.model_validate({"method": message["method"], "params": message["params"]})
        except ValidationError as error:
            logger.warning("%s cannot be sent: %s", message["method"], _describe(error))
            return
        self._put(notification)

    def own_list_changed(self) -> bool:
        """Send the notification with the response: a client with a session may have no other stream open."""
        if self.session is None:
            self._announce()
        else:
            self._put(types.ToolListChangedNotification())
        return self.session is not None

    def _put(self, notification: Any) -> None:
        self._outgoing.append(notification)
        if self._written is None:
            self._written = anyio.Event()
            if self._ctx is None:
                self._on_used()
            else:
                spawn(self._write, self._written)

    def _wants_log(self, message: dict[str, Any]) -> bool:
        level = message["params"].get("level")
        # An unknown level passes here, so that its failure to be sent is logged.
        return reaches(level, self._level) or (self._level in LEVELS and level not in LEVELS)

    async def _write(self, written: anyio.Event) -> None:
        try:
            while self._outgoing:
                await self._send(self._outgoing.popleft())
        finally:
            self._written = None
            written.set()

    async def _send(self, notification: Any) -> None:
        ctx = await self._context()
        try:
            await ctx.session.send_notification(notification, related_request_id=ctx.request_id)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            logger.debug("%s: the client has disconnected", notification.method)
        except Exception as error:  # noqa: BLE001 - a notification that cannot be written must not stop the others
            logger.warning("%s could not be sent: %s: %s", notification.method, type(error).__name__, error)

    async def flush(self) -> None:
        """Wait until all notifications are written: the response must be sent after them."""
        while self._written is not None:
            await self._written.wait()

    # Requests.

    async def request(
        self, method: str, params: dict[str, Any], *, key: str | None = None, repeatable: bool = True
    ) -> dict[str, Any]:
        """Send a request to the client. In a stateless version of MCP this may end the call."""
        capability, request, result = _REQUESTS[method]
        self._require(capability, params)
        if params.get("tools"):
            result = types.CreateMessageResultWithTools
        try:
            message = request.model_validate({"method": method, "params": params})
        except ValidationError as error:
            raise RpcError(INVALID_PARAMS, f"{method}: {_describe(error)}") from None
        if self._stateless:
            return await self._request_by_round(method, params, key, result, repeatable)
        ctx = await self._context()
        await self.flush()
        try:
            response = await ctx.session.send_request(
                message, result, metadata=ServerMessageMetadata(related_request_id=ctx.request_id)
            )
        except NoBackChannelError:
            raise RpcError(INVALID_REQUEST, _NO_SESSION) from None
        except MCPError as error:
            raise RpcError(error.error.code, error.error.message, error.error.data) from error
        return response.model_dump(by_alias=True, mode="json", exclude_none=True)

    def _require(self, capability: str, params: dict[str, Any]) -> None:
        """Raise `RpcError` if the client does not have the capability that a request needs."""
        mode = (params.get("mode") or "form") if capability == "elicitation" else None
        if not self._stateless and self._declared() is None:
            raise RpcError(INVALID_REQUEST, _NO_SESSION)
        declared = self.capabilities.get(capability)
        if declared is not None and (mode is None or mode in declared or (mode == "form" and not declared)):
            return
        # `elicitation` without a mode means forms, so that is all that is required for one.
        special = mode == "url" or (mode == "form" and declared is not None)
        required: dict[str, Any] = {capability: {mode: {}} if special else {}}
        name = f"{capability}.{mode}" if special else capability
        raise RpcError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            f"This needs the client capability {name}, which this client does not declare",
            {"requiredCapabilities": required},
        )

    async def _request_by_round(
        self, method: str, params: dict[str, Any], key: str | None, result: type[BaseModel], repeatable: bool
    ) -> dict[str, Any]:
        """Return the response that was sent with this call, or end the call with "input required"."""
        if self.input_required is not None:
            self._late_requests += 1
            if self._late_requests >= _MAX_LATE_REQUESTS:
                self.scope.cancel()
            await anyio.lowlevel.checkpoint()
            raise Interrupted
        if not key:
            content = f"{method.partition('/')[0]}-{_digest(params)}"
            self._repeats[content] += 1
            key = f"{content}-{self._repeats[content]}"
        if key in self._responses:
            return self._response(key, result)
        if not repeatable:
            raise RpcError(
                INVALID_REQUEST,
                "This tool must not run twice, but with this client's version of MCP a response to its request "
                "would run it again; use a client that keeps a session (2025-11-25 or older)",
            )
        self._requests[key] = {"method": method, "params": params}
        for _ in range(_JOIN_TURNS):
            await anyio.lowlevel.checkpoint()
        self.input_required = {
            "resultType": "input_required",
            "inputRequests": self._requests,
            "requestState": dumps(self._responses).decode(),
        }
        self.scope.deadline = anyio.current_time() + _CLEANUP_TIMEOUT
        raise Interrupted

    def _response(self, key: str, result: type[BaseModel]) -> dict[str, Any]:
        response: dict[str, Any] = self._responses[key]
        try:
            result.model_validate(response, by_name=False)
        except ValidationError as error:
            raise RpcError(INVALID_PARAMS, f"inputResponses[{key!r}]: {_describe(error)}") from None
        return response


def _take_responses(params: dict[str, Any]) -> dict[str, Any]:
    """Remove the responses of earlier rounds and of this one from the params of a call, and return them."""
    state, given = params.pop("requestState", None), params.pop("inputResponses", None)
    try:
        earlier = loads(state.encode()) if isinstance(state, str) else {}
    except ValueError:
        raise MCPError(code=INVALID_PARAMS, message="Invalid or expired requestState") from None
    return {**earlier, **(given if isinstance(given, dict) else {})}


def _digest(params: dict[str, Any]) -> str:
    return hashlib.sha256(dumps(params, sort_keys=True)).hexdigest()[:12]


def _describe(error: ValidationError) -> str:
    """Describe the first problem of a validation error."""
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"


_NOTIFY_TIMEOUT: Final = 10.0  # seconds in which a client has to receive a notification
_UPDATED: Final = "notifications/resources/updated"
_Notification: TypeAlias = tuple[str, Mapping[str, Any] | None]  # method and params

EVENTS: Final[Mapping[str, Callable[[], ServerEvent]]] = {
    "notifications/tools/list_changed": ToolsListChanged,
    "notifications/resources/list_changed": ResourcesListChanged,
    "notifications/prompts/list_changed": PromptsListChanged,
}


@dataclass(eq=False)
class ClientState:
    """The log level and subscriptions of one session. Tools get it as `context.session`."""

    level: str = LEVELS[0]
    subscriptions: set[str] = field(default_factory=set)
    key: str = field(default_factory=lambda: secrets.token_hex(8))
    """Identifies the session in the keys of its requests."""


def state_of(connection: ClientConnection) -> ClientState:
    """Return the state of a client, made when it is first needed."""
    state: ClientState | None = connection.state.get("toolwire")
    if state is None:
        state = connection.state["toolwire"] = ClientState()
    return state


class ClientRegistry:
    """All clients that have a session, and the streams of those that listen without one."""

    def __init__(self) -> None:
        self.by_session_id: dict[str, ClientConnection] = {}
        """The clients over HTTP, except those whose session belongs to an authenticated user."""
        self.on_closed: Callable[[ClientConnection], None] = lambda _connection: None
        """Called with each client in `by_session_id` when its session has ended."""
        self._connections: set[ClientConnection] = set()
        self._queues: dict[
            ClientConnection, deque[_Notification]
        ] = {}  # while a client is sent notifications
        self._bus = InMemorySubscriptionBus()
        self.listen_handler = ListenHandler(self._bus)
        """Answers `subscriptions/listen`."""

    async def add(self, ctx: ServerRequestContext[Any, Any], _params: Any) -> None:
        """Handle `notifications/initialized`: from now on the client is notified of changes."""
        connection = connection_of(ctx)
        if connection.has_standalone_channel and connection not in self._connections:
            self._connections.add(connection)
            connection.exit_stack.callback(self._connections.discard, connection)
            # If an application around ours has authenticated the user, `mcp` keeps the session for that user.
            if connection.session_id is not None and "user" not in getattr(ctx.request, "scope", ()):
                self.by_session_id[connection.session_id] = connection
                connection.exit_stack.callback(self._remove, connection)

    def _remove(self, connection: ClientConnection) -> None:
        self.by_session_id.pop(str(connection.session_id), None)
        self.on_closed(connection)

    def broadcast(self, message: Mapping[str, Any]) -> None:
        """Send a notification to every client that wants it. Never waits."""
        method, params = message["method"], message.get("params") or {}
        if (event := EVENTS.get(method)) is not None:
            spawn(self._bus.publish, event())
            receivers = list(self._connections)
        elif method == _UPDATED:
            uri = str(params.get("uri"))
            spawn(self._bus.publish, ResourceUpdated(uri))
            receivers = [each for each in self._connections if uri in state_of(each).subscriptions]
        elif method == "notifications/message":
            level = str(params.get("level"))
            receivers = [each for each in self._connections if reaches(level, state_of(each).level)]
        else:
            return
        for connection in receivers:
            queue = self._queues.get(connection)
            if queue is None:
                queue = self._queues[connection] = deque()
                spawn(self._send, connection, queue)
            queue.append((method, message.get("params")))

    async def _send(self, connection: ClientConnection, queue: "deque[_Notification]") -> None:
        """Send a client its notifications in order. If one is not sent in time, the following are dropped too."""
        try:
            while queue:
                method, params = queue.popleft()
                with anyio.move_on_after(_NOTIFY_TIMEOUT) as limit:
                    try:
                        await connection.notify(method, params)
                    except Exception:
                        logger.exception("%s could not be sent to a client", method)
                if limit.cancelled_caught:
                    logger.warning("a client did not receive %s within %g s", method, _NOTIFY_TIMEOUT)
                    queue.clear()
        finally:
            del self._queues[connection]


class Broadcaster(ClientChannel):
    """The channel of the primary connection: sends its notifications to every client that wants them."""

    def __init__(self, clients: ClientRegistry) -> None:
        self._clients = clients

    def notify(self, message: dict[str, Any]) -> None:
        self._clients.broadcast(message)


def client_key(scope: Mapping[str, Any] | None, meta: Mapping[str, Any] | None) -> Hashable:
    """Return an identifier for the sender of a request without a session; None if that is not possible.

    It consists of the user, if an application around ours has authenticated one, or else the address; and of the
    name and version that the client gives, since all clients behind a proxy, or on this machine, share an address.
    """
    if scope is None:
        return None
    user, address = scope.get("user"), scope.get("client")
    info = (meta or {}).get(types.CLIENT_INFO_META_KEY)
    name, version = (info.get("name"), info.get("version")) if isinstance(info, Mapping) else (None, None)
    if isinstance(user, AuthenticatedUser):
        return (*authorization_context(user).values(), str(name)[:64], str(version)[:64])
    return (None if address is None else address[0], str(name)[:64], str(version)[:64])
