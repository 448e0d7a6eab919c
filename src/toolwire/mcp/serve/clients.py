"""Who is connected, and who hears of what.

Clients of the versions with a handshake have a session, a log level and subscriptions, and are told straight away;
those of 2026-07-28 listen on a stream of their own. What a request gets is not known here.
"""

import secrets
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context
from mcp.server.connection import Connection as Client
from mcp.server.context import ServerRequestContext
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
from toolwire.tools.context import LEVELS, reaches

logger = logger_for("serving")

_PATIENCE: Final = 10.0  # seconds that one client may hold up a notice meant for it

EVENTS: Final[Mapping[str, Callable[[], ServerEvent]]] = {
    "notifications/tools/list_changed": ToolsListChanged,
    "notifications/resources/list_changed": ResourcesListChanged,
    "notifications/prompts/list_changed": PromptsListChanged,
}
_UPDATED: Final = "notifications/resources/updated"


@dataclass(eq=False)
class Session:
    """A client that has a session, and what it wants to hear. Tools see it as `context.session`."""

    level: str = LEVELS[0]
    resources: set[str] = field(default_factory=set)
    key: str = field(default_factory=lambda: secrets.token_hex(8))
    """Stands for the session in the keys of its requests."""


class Audience:
    """All who are connected."""

    def __init__(self) -> None:
        self._clients: set[Client] = set()
        self.named: dict[str, Client] = {}
        """Those of them whose session has an id, and is nobody's in particular."""
        self.left: Callable[[Client], None] = lambda _client: None
        """Called for each of these when it has left."""
        self._bus = InMemorySubscriptionBus()
        self.listening = ListenHandler(self._bus)
        """Answers `subscriptions/listen`."""

    async def joined(self, ctx: ServerRequestContext[Any, Any], _params: Any) -> None:
        """A client with a session is ready to hear."""
        client = client_of(ctx)
        if client.has_standalone_channel and client not in self._clients:
            self._clients.add(client)
            client.exit_stack.callback(self._clients.discard, client)
            # Where an application around ours knows its users, `mcp` sees to it that a session stays its user's.
            if client.session_id is not None and "user" not in getattr(ctx.request, "scope", ()):
                self.named[client.session_id] = client
                client.exit_stack.callback(self._forget, client)

    def _forget(self, client: Client) -> None:
        self.named.pop(str(client.session_id), None)
        self.left(client)

    def announce(self, message: Mapping[str, Any]) -> None:
        """Pass a notice of the server on to everybody whom it concerns."""
        method, params = message["method"], message.get("params")
        if (event := EVENTS.get(method)) is not None:
            spawn(self._bus.publish, event())
            clients = list(self._clients)
        elif method == _UPDATED:
            uri = str((params or {}).get("uri"))
            spawn(self._bus.publish, ResourceUpdated(uri))
            clients = [each for each in self._clients if uri in session_of(each).resources]
        elif method == "notifications/message":
            clients = [
                each for each in self._clients if reaches((params or {}).get("level"), session_of(each).level)
            ]
        else:
            return
        for client in clients:
            spawn(_told, client, method, params)


class Broadcaster(ClientChannel):
    """The channel of the primary connection: sends its notifications to every client that wants them."""

    def __init__(self, audience: Audience) -> None:
        self._audience = audience

    def notify(self, message: dict[str, Any]) -> None:
        self._audience.announce(message)


def client_of(ctx: ServerRequestContext[Any, Any]) -> Client:
    """What `mcp` knows of the client; it means to give it to handlers one day, and has it here until then."""
    client: Client = ctx.session._connection  # noqa: SLF001
    return client


def session_of(client: Client) -> Session:
    session: Session | None = client.state.get("toolwire")
    if session is None:
        session = client.state["toolwire"] = Session()
    return session


def client_key(scope: Mapping[str, Any] | None, meta: Mapping[str, Any] | None) -> Hashable:
    """Who sent a request that belongs to no session, as far as can be told; None if not at all.

    The user, where an application around ours knows its users, else the address; and the name and version that the
    client gives itself, since all clients behind a proxy, and all on this machine, have one address.
    """
    if scope is None:
        return None
    user, address = scope.get("user"), scope.get("client")
    info = (meta or {}).get(CLIENT_INFO_META_KEY)
    name, version = (info.get("name"), info.get("version")) if isinstance(info, Mapping) else (None, None)
    if isinstance(user, AuthenticatedUser):
        return (*authorization_context(user).values(), str(name)[:64], str(version)[:64])
    return (None if address is None else address[0], str(name)[:64], str(version)[:64])


async def _told(client: Client, method: str, params: Mapping[str, Any] | None) -> None:
    with anyio.move_on_after(_PATIENCE) as limit:
        await client.notify(method, params)
    if limit.cancelled_caught:
        logger.warning("a client did not take %s within %g s", method, _PATIENCE)
