"""The seams of a server: to whoever carries its messages (`Server`, `Connection`), and whoever pays for calls.

A carrier (the CLI's router, a served channel, a client in this process) connects to a server, gives the connection
one decoded message after the other, and sends the replies. It needs to know nothing else of either side. A chain
has a `Reserver` hold the money of its paid steps before the first of them runs.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
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


@dataclass(frozen=True)
class PlannedCall:
    """A paid call that is to come, with those of its arguments that are known already."""

    tool: str
    arguments: Mapping[str, Any]
    max_price: float | str | None = None
    """The most that it may cost, in dollars; what it counts as if its price is not known."""


class Reservation(Protocol):
    """Money that is reserved for several calls."""

    @property
    def micros(self) -> int:
        """The sum, in micro-dollars."""
        ...

    def using(self, index: int) -> AbstractContextManager[None]:
        """Let the call that is made inside the block use the money of the planned call of that index."""
        ...

    def release(self) -> None:
        """Give back what was not used. Never waits."""
        ...


class Reserver(Protocol):
    """Whoever pays for calls."""

    def quote(self, calls: Sequence[PlannedCall]) -> str:
        """Return a sentence on what these calls cost together, "" if that is not known."""
        ...

    async def reserve(self, calls: Sequence[PlannedCall]) -> Reservation:
        """Reserve the money of all of these calls, or of none. `CatalogError` says why it cannot be."""
        ...
