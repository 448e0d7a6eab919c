"""One request to the API, on a connection of its own, to a checked address, with the headers that we mean.

Whether anything of an order went out is not guessed from the kind of exception: the body of the request reports
before it is sent, and so does the HTTP library's trace before the first byte of the headers.
"""

import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import httpx2

from toolwire._version import __version__
from toolwire.catalog.http.addresses import Base, Resolver
from toolwire.catalog.http.answers import Attempt
from toolwire.catalog.http.requests import OutgoingRequest, with_credentials
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
        self.error = error  # httpcore2's pool erases `__cause__`
        super().__init__(str(error))


class Order:
    """The body of a purchase. `attempt.sent` is set, after `on_send`, just before its first byte goes out."""

    def __init__(self, content: bytes, attempt: Attempt, on_send: OnSend | None = None) -> None:
        self.content = content
        self.attempt = attempt
        self._on_send = on_send

    async def leaving(self) -> None:
        """To be awaited before anything is sent; again and again, if need be."""
        if self._on_send is not None:
            try:
                await self._on_send()
            except Exception as error:
                raise Halted(error) from error
            self._on_send = None
        self.attempt.sent = True

    async def trace(self, event: str, _: Mapping[str, Any]) -> None:
        """What the HTTP library calls at each of its steps."""
        if event.endswith("send_request_headers.started"):
            await self.leaving()


class _Body(httpx2.AsyncByteStream):
    # The second guard: should the steps ever get other names, no body can go out without this.
    def __init__(self, order: Order) -> None:
        self._order = order

    async def __aiter__(self) -> AsyncIterator[bytes]:
        await self._order.leaving()
        yield self._order.content


class Connections:
    """What all requests to one API have in common."""

    def __init__(
        self,
        base_url: str,
        credentials: Credentials,
        *,
        resolver: Resolver,
        connect_timeout: float,
        transport: httpx2.AsyncBaseTransport | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        for name, value in {**credentials.headers, **credentials.query}.items():
            check_value(name, value)
        self._credentials = credentials
        self._base = Base.of(base_url)
        self._headers = {
            "Host": self._base.named,
            "User-Agent": f"toolwire/{__version__}",
            "Accept-Encoding": "identity",  # a packed reply could not be bounded while it is read
            "Connection": "close",
        }
        self._resolver = resolver
        self._connect_timeout = connect_timeout
        self.closed = False
        """Whether nothing may be sent any more."""
        # No keep-alive: a connection that the server closes just as it is used again would be an order in doubt.
        limits = httpx2.Limits(max_connections=100, max_keepalive_connections=0)
        # No client of the HTTP library around it: that is for redirects, cookies and the environment, none of which
        # we want, and costs a tenth of a call.
        self.transport = transport or httpx2.AsyncHTTPTransport(
            verify=ssl_context or True, trust_env=False, limits=limits
        )

    @asynccontextmanager
    async def open(
        self, request: OutgoingRequest, limit: float, order: Order | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request; the reply has its head, and its body can be read."""
        token = _quiet.set(True)
        try:
            response = await self._send(with_credentials(request, self._credentials), limit, order)
            try:
                yield response
            finally:
                await response.aclose()
        finally:
            _quiet.reset(token)

    async def _send(self, outgoing: OutgoingRequest, limit: float, order: Order | None) -> httpx2.Response:
        addresses = await self._base.addresses(self._resolver)
        if self.closed:  # the transport would open itself again, and buy
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
            extensions["trace"] = order.trace
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
    """Refuse what would break out of a header. The value is not shown: it may be a secret."""
    if not value or not value.isascii() or not value.isprintable() or value != value.strip():
        raise UsageError(
            f"the value of {name} cannot be sent in a header: it must be printable ASCII, no space at the ends. "
            "Was it copied with a line break?"
        )
