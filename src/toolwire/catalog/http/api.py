"""The API behind a catalogue: its connections, its list, and orders."""

import ssl
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httpx2

from toolwire._support.scrubber import Scrubber
from toolwire._support.threads import Workers
from toolwire.catalog.http.answers import Answer, Attempt
from toolwire.catalog.http.connection import (
    CONNECT_TIMEOUT,
    Connections,
    Network,
    Resolver,
    Retry,
    resolve,
)
from toolwire.catalog.http.fetch import ListReader
from toolwire.catalog.http.listing import Reading
from toolwire.catalog.http.orders import OrderSender
from toolwire.catalog.profile.model import Profile
from toolwire.catalog.secrets import Credentials
from toolwire.catalog.tools.definitions import Entry

__all__ = ["Answer", "Api", "Attempt", "Retry"]


class Api:
    """A catalogue's API, as its profile describes it. An async context manager that owns the connections."""

    def __init__(
        self,
        profile: Profile,
        credentials: Credentials,
        *,
        transport: httpx2.AsyncBaseTransport | None = None,
        resolver: Resolver = resolve,
        ssl_context: ssl.SSLContext | None = None,
        retry: Retry | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
        workers: Workers | None = None,
    ) -> None:
        scrubber, retry = Scrubber(credentials.values), retry or Retry()
        self._connections = Connections(
            profile.base_url,
            credentials,
            resolver=resolver,
            connect_timeout=connect_timeout,
            network=Network.of(profile.network, credentials.proxy),
            transport=transport,
            ssl_context=ssl_context,
        )
        workers = workers or Workers(2)
        self._reader = ListReader(profile, self._connections, scrubber, retry, workers)
        self._sender = OrderSender(profile, self._connections, scrubber, retry, workers)

    async def __aenter__(self) -> Self:
        await self._connections.transport.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self._connections.closed = True
        await self._connections.transport.__aexit__(kind, error, trace)

    async def entries(self) -> Sequence[Entry]:
        """Return all entries, from all pages; the same object if nothing has changed.

        CatalogError if the list cannot be read.
        """
        return await self._reader.entries()

    async def read_list(self, most_pages: int | None = None) -> Reading:
        """Read the list, or only its first pages, and return the whole reading. For checking a profile."""
        return await self._reader.read(most_pages)

    async def balance(self) -> int:
        """Return the balance in micro-dollars. CatalogError if the profile has no such request, or it fails."""
        return await self._reader.balance()

    async def buy(self, entry_id: str, arguments: Mapping[str, Any], **settings: Any) -> Answer:
        """Send an order: see `OrderSender.buy`."""
        return await self._sender.buy(self._reader.numbers.get(entry_id, entry_id), arguments, **settings)
