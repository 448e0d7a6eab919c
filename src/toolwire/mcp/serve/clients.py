"""The clients that are connected, what each of them subscribed to, and how notifications reach them.

Clients of the versions with a handshake have a session, a log level and subscriptions, and are notified directly;
those of 2026-07-28 listen on a stream of their own. Must not know how requests are answered.
"""

import secrets
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
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
from mcp_types import CLIENT_INFO_META_KEY

from toolwire._protocol.jsonrpc import ClientChannel
from toolwire._support.log import logger_for
from toolwire._support.tasks import spawn
from toolwire.mcp.compat import AuthenticatedUser, ClientConnection, authorization_context, connection_of
from toolwire.tools.context import LEVELS, reaches

logger = logger_for("serving")

_NOTIFY_TIMEOUT: Final = 10.0  # seconds that one client has to take a notification
_UPDATED: Final = "notifications/resources/updated"

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
        """The clients over HTTP, but for those whose session belongs to an authenticated user."""
        self.on_closed: Callable[[ClientConnection], None] = lambda _connection: None
        """Called for each of these when its session has ended."""
        self._connections: set[ClientConnection] = set()
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
            spawn(_notify, connection, method, message.get("params"))


class Broadcaster(ClientChannel):
    """The channel of the primary connection: sends its notifications to every client that wants them."""

    def __init__(self, clients: ClientRegistry) -> None:
        self._clients = clients

    def notify(self, message: dict[str, Any]) -> None:
        self._clients.broadcast(message)


def client_key(scope: Mapping[str, Any] | None, meta: Mapping[str, Any] | None) -> Hashable:
    """Identify the sender of a request without a session; None if that is not possible.

    By the user, where an application around ours has authenticated one, else by the address; and by the name and
    version that the client gives, since all clients behind a proxy, and all on this machine, have one address.
    """
    if scope is None:
        return None
    user, address = scope.get("user"), scope.get("client")
    info = (meta or {}).get(CLIENT_INFO_META_KEY)
    name, version = (info.get("name"), info.get("version")) if isinstance(info, Mapping) else (None, None)
    if isinstance(user, AuthenticatedUser):
        return (*authorization_context(user).values(), str(name)[:64], str(version)[:64])
    return (None if address is None else address[0], str(name)[:64], str(version)[:64])


async def _notify(connection: ClientConnection, method: str, params: Mapping[str, Any] | None) -> None:
    with anyio.move_on_after(_NOTIFY_TIMEOUT) as limit:
        await connection.notify(method, params)
    if limit.cancelled_caught:
        logger.warning("a client did not take %s within %g s", method, _NOTIFY_TIMEOUT)
