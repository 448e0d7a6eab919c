"""The seam between a server and whoever carries its messages: `Server`, `Connection`, and the kinds of answer.

A carrier (the CLI's router, a served channel, a client in this process) connects to a server, gives the connection
one decoded message after the other, and sends the replies. It needs to know nothing else of either side.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from functools import partial
from typing import Any, Protocol, TypedDict

from toolwire._protocol.jsonrpc import ClientChannel
from toolwire.tools.context import LogLevel

Reply = dict[str, Any]
"""A complete JSON-RPC response."""


class Pending(partial[Awaitable[Reply | None]]):
    """A message that was accepted and takes time. Call it, once, and await what that gives: the reply, or None."""

    __slots__ = ()


class Connection(ABC):
    """One client of a server."""

    tags_progress: bool = False
    """True if its progress notifications say themselves which tool use they belong to, in their `_meta`."""

    @abstractmethod
    def begin(self, message: Any, *, encoded: bool = False) -> Reply | Pending | None:
        """Answer a message at once, or return the work that will.

        None for a message that gets no reply. Raises `Unanswerable` when there can be none. With `encoded`, a
        reply may hold an `orjson.Fragment`, for a caller that writes with orjson.
        """

    @property
    def limits_time(self) -> bool:
        """True if a call may have a time limit, which takes a cancel scope of anyio."""
        return False

    async def answer(self, message: Any) -> Reply | None:
        """Answer a message: the reply to a request, None for anything else. Raises as `begin` does."""
        begun = self.begin(message)
        return await begun() if isinstance(begun, Pending) else begun

    @abstractmethod
    async def aclose(self) -> None:
        """Cancel what runs and disconnect, in bounded time. The server itself stays."""


class ConnectionSettings(TypedDict, total=False):
    """Settings of a connection to a server of ours."""

    violations_as_results: bool
    """Arguments that break the schema come back as an error result, as MCP wants it over stdio and HTTP, instead of
    a JSON-RPC error, which the CLI shows to the model just as well."""
    log_level: LogLevel
    """The least level that is sent before the client sets one."""
    notify_all_updates: bool
    """Updates of all resources are sent, for a carrier that keeps the subscriptions itself."""


class Server(Protocol):
    """Anything that can be connected to in process."""

    def connect(self, channel: ClientChannel) -> Connection:
        """Open a new connection; any number may be open at once."""
        ...
