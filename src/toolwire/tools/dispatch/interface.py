"""The interfaces of a server: for carriers of its messages (`Server`, `Connection`), and for paid calls.

A carrier (the CLI's router, a served channel, a client in this process) connects to a server, gives the connection
one decoded message after the other, and sends the replies. It needs to know nothing else of either side. A chain
uses a `Reserver` to reserve the money for its paid steps before the first of them runs.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from toolwire._protocol.jsonrpc import ClientChannel

Reply = dict[str, Any]
"""A complete JSON-RPC response."""


class Pending(partial[Awaitable[Reply | None]]):
    """The work of a message that was accepted. Call it once, and await the result: the reply, or None."""

    __slots__ = ()


class Connection(ABC):
    """One client of a server."""

    tags_progress: bool = False
    """True if its progress notifications name their tool use in `_meta`."""

    @abstractmethod
    def begin(self, message: Any, *, encoded: bool = False) -> Reply | Pending | None:
        """Answer a message at once, or return the work that will answer it.

        None for a message that gets no reply. Raises `Unanswerable` for a message that cannot get a reply. With
        `encoded`, a reply may hold an `orjson.Fragment`, for a caller that encodes with orjson.
        """

    @property
    def limits_time(self) -> bool:
        """True if a call may have a time limit, which needs a cancel scope of anyio."""
        return False

    async def answer(self, message: Any) -> Reply | None:
        """Answer a message: the reply to a request, None for anything else. Raises as `begin` does."""
        begun = self.begin(message)
        return await begun() if isinstance(begun, Pending) else begun

    @abstractmethod
    async def aclose(self) -> None:
        """Cancel running calls and disconnect, in bounded time. The server itself stays open."""


class Server(Protocol):
    """Anything that can be connected to in process."""

    def connect(self, channel: ClientChannel) -> Connection:
        """Open a new connection; any number may be open at once."""
        ...


@dataclass(frozen=True)
class PlannedCall:
    """A paid call that is planned, with those of its arguments that are known already."""

    tool: str
    arguments: Mapping[str, Any]
    max_price: float | str | None = None
    """The most that it may cost, in dollars. It is reserved if the price is not known."""


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
        """Release the money that was not used. Never waits."""
        ...


class Reserver(Protocol):
    """Reserves money for paid calls."""

    def quote(self, calls: Sequence[PlannedCall]) -> str:
        """Return a sentence on what these calls cost together, "" if that is not known."""
        ...

    async def reserve(self, calls: Sequence[PlannedCall]) -> Reservation:
        """Reserve the money for all of these calls, or for none. `CatalogError` says why that is not possible."""
        ...
