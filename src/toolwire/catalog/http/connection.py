"""Sends one request to the API: to a checked address, with exactly our headers, on a connection of its own.

Whether anything of an order went out is not guessed from the kind of exception: an `Order` is told when it is about
to be sent, after the connection was made and before its first byte.
"""

import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import anyio
import anyio.lowlevel
import httpx2

from toolwire._version import __version__
from toolwire.catalog.http.addresses import Base, Network, Resolver
from toolwire.catalog.http.answers import Attempt
from toolwire.catalog.http.requests import OutgoingRequest, add_credentials
from toolwire.catalog.http.transport import IsOpen, OneRequestTransport
from toolwire.catalog.secrets import Credentials
from toolwire.errors import CatalogError, UsageError

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


def _unless_ours(_record: logging.LogRecord) -> bool:
    return not _quiet.get()


# The HTTP library logs status lines and headers of replies, and an API may echo our keys in those.
for _name in ("httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.http2", "httpcore2.proxy"):
    logging.getLogger(_name).addFilter(_unless_ours)

_url = lru_cache(64)(httpx2.URL)  # to read one costs as much as to make the rest of a request

OnSend = Callable[[], Awaitable[None]]


class Halted(Exception):  # noqa: N818 - carries an exception of the caller's past the transport
    """`on_send` raised, and nothing was sent."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


class Order:
    """The body of a purchase that is sent once or several times.

    `on_send` is awaited each time, on an open connection and before the first byte: what it raises keeps the order
    from being sent. `attempt.sent` is set right after it.
    """

    def __init__(self, content: bytes, attempt: Attempt, on_send: OnSend | None = None) -> None:
        self.content = content
        self.attempt = attempt
        self._on_send = on_send
        self._ready = False

    def begin_try(self) -> None:
        """Begin to send it, for the first time or again."""
        self._ready = False

    async def before_send(self, is_open: IsOpen = lambda: True) -> None:
        """Get ready to send it, once each try. `is_open` tells whether the connection is still there afterwards."""
        if self._ready:
            return
        if self._on_send is not None:
            try:
                await self._on_send()
            except Exception as error:
                raise Halted(error) from error
            await (
                anyio.lowlevel.checkpoint_if_cancelled()
            )  # a booking waits for no cancellation: now it may come
        if not is_open():
            raise httpx2.ConnectError("the API closed the connection before anything was sent")
        self._ready = self.attempt.sent = True


class _Body(httpx2.AsyncByteStream):
    # The second guard: whatever a transport calls before, no body goes out without this.
    def __init__(self, order: Order) -> None:
        self._order = order

    async def __aiter__(self) -> AsyncIterator[bytes]:
        await self._order.before_send()
        yield self._order.content


class Connections:
    """Opens connections for the requests to one API."""

    def __init__(
        self,
        base_url: str,
        credentials: Credentials,
        *,
        resolver: Resolver,
        connect_timeout: float,
        network: Network,
        transport: httpx2.AsyncBaseTransport | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        for name, value in {**credentials.headers, **credentials.query}.items():
            check_value(name, value)
        self._credentials = credentials
        self._base = Base.of(base_url)
        self._headers = {
            "Host": self._base.host_header,
            "User-Agent": f"toolwire/{__version__}",
            "Accept-Encoding": "identity",  # a packed reply could not be bounded while it is read
            "Connection": "close",
        }
        self._resolver = resolver
        self._connect_timeout = connect_timeout
        self._network = network
        self.closed = False
        """True if nothing may be sent any more."""
        # No client of the HTTP library around it: that is for redirects, cookies and the environment, none of which
        # we want, and costs a tenth of a call.
        self.transport = transport or OneRequestTransport(
            lambda: ssl_context or network.ssl_context(), network.proxy
        )

    @asynccontextmanager
    async def open(
        self, request: OutgoingRequest, limit: float, order: Order | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request; the reply has its head, and its body can be read."""
        token = _quiet.set(True)
        try:
            response = await self._send(add_credentials(request, self._credentials), limit, order)
            try:
                yield response
            finally:
                await response.aclose()
        finally:
            _quiet.reset(token)

    async def _addresses(self) -> list[str]:
        if self._network.proxy is not None:
            return [self._base.host]  # the proxy resolves the name, and decides where it may lead
        try:
            with anyio.fail_after(self._connect_timeout):
                return await self._base.addresses(self._resolver, self._network.allow)
        except TimeoutError:
            raise httpx2.ConnectTimeout(
                f"{self._base.host} was not resolved within {self._connect_timeout:g} s"
            ) from None

    async def _send(self, outgoing: OutgoingRequest, limit: float, order: Order | None) -> httpx2.Response:
        addresses = await self._addresses()
        if self.closed:
            raise CatalogError("the connection to the API is closed")
        connect = min(self._connect_timeout / len(addresses), limit)
        extensions: dict[str, Any] = {
            "timeout": {"connect": connect, "read": limit, "write": limit, "pool": self._connect_timeout},
            "sni_hostname": self._base.host,
        }
        own = {name.lower() for name in outgoing.headers}
        headers = {name: value for name, value in self._headers.items() if name.lower() not in own}
        headers |= outgoing.headers
        if outgoing.method != "GET":
            headers["Content-Length"] = str(len(outgoing.content))
        if order is not None:
            headers["Content-Length"] = str(len(order.content))
            extensions["before_send"] = order.before_send
        while True:
            url = _url(self._base.url(addresses.pop(0), outgoing.target))
            body = httpx2.ByteStream(outgoing.content) if order is None else _Body(order)
            request = httpx2.Request(
                outgoing.method, url, headers=headers, stream=body, extensions=extensions
            )
            try:
                response = await self.transport.handle_async_request(request)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                # A dead address: the next one may be tried, for nothing went out.
                if not addresses or (order is not None and order.attempt.sent):
                    raise
            else:
                response.request = request
                return response


def check_value(name: str, value: str) -> None:
    """Reject a header value that could inject other headers. The value is not shown: it may be a secret."""
    if not value or not value.isascii() or not value.isprintable() or value != value.strip():
        raise UsageError(
            f"the value of {name} cannot be sent in a header: it must be printable ASCII, no space at the ends. "
            "Was it copied with a line break?"
        )
