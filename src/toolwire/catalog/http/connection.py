"""Sends one request to the API: to a checked address, with exactly our headers, on a connection of its own.

Owns where requests may go: each connection resolves the name, checks the address, and uses exactly that address.
If the name were resolved again after the check, an attacker's DNS server could respond differently the second
time (rebinding). So the URL contains the address, while the `Host` header and the name in the TLS handshake stay
those of the profile.

Whether any part of an order was sent is not guessed from the kind of exception: the `Order` is notified just before
it is sent, after the connection was made and before the first byte.
"""

import ipaddress
import logging
import random
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
import httpx2

from toolwire._support.addresses import is_loopback
from toolwire._version import __version__
from toolwire.catalog.http.answers import Attempt
from toolwire.catalog.http.requests import DEFAULT_PORTS, OutgoingRequest, add_credentials
from toolwire.catalog.http.transport import IsOpen, OneRequestTransport
from toolwire.catalog.profile.rules import is_header_value
from toolwire.catalog.profile.tables import NetworkSettings
from toolwire.catalog.secrets import Credentials
from toolwire.errors import CatalogError, UsageError

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
CONNECT_TIMEOUT: Final = 10.0
"""Seconds within which a connection must be made, or the request fails."""


@dataclass(frozen=True)
class Retry:
    """How often and when requests are retried that are safe to retry. Times are in seconds."""

    attempts: int = 3
    wait: float = 0.2
    """Before the second attempt; doubled for each further one."""
    longest_wait: float = 5.0
    jitter: float = 0.2
    longest_retry_after: float = 30.0
    """The longest wait that an API may request with `Retry-After`."""

    def pause(self, tries: int, retry_after: float | None) -> float:
        """Return the seconds to wait after that many attempts."""
        jitter = random.uniform(0, self.jitter)  # noqa: S311 - spreads callers, keeps no secret
        if retry_after is not None:
            return min(retry_after, self.longest_retry_after) + jitter
        return min(self.wait * 2.0 ** (tries - 1), self.longest_wait) + jitter


async def resolve(host: str, port: int) -> Sequence[str]:
    """Resolve a name to its addresses, in the order in which the system returns them."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(place[0]) for *_, place in found]


def make_ssl_context(ca_file: str = "") -> ssl.SSLContext:
    """Create a TLS context that trusts the certificates in a file, or the system's if it is empty.

    CatalogError if the file cannot be read.
    """
    if not ca_file:
        return httpx2.create_ssl_context(trust_env=False)
    try:
        return ssl.create_default_context(cafile=Path(ca_file).expanduser())
    except (OSError, ssl.SSLError) as error:
        raise CatalogError(
            f"network.ca_file {ca_file} cannot be read as certificates (PEM): {error}"
        ) from error


def _make_proxy(url: str, login: str) -> httpx2.Proxy | None:
    """Return the proxy at this URL, None if it is empty. `login` is `user:password`, or empty."""
    user, mark, password = login.partition(":")
    return httpx2.Proxy(url, auth=(user, password) if mark else None) if url else None


@dataclass(frozen=True)
class Base:
    """A base URL in its parts."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> "Base":
        """Parse a URL that the profile has checked already."""
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS[parts.scheme]
        return cls(parts.scheme, parts.hostname or "", port, parts.path.rstrip("/"))

    @property
    def local(self) -> bool:
        """True if the base URL refers to this machine."""
        return is_loopback(self.host)

    @property
    def host_header(self) -> str:
        """The value of the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def url(self, address: str, path: str) -> str:
        """Return the URL of a path below the base, with a checked address in place of the name."""
        host = f"[{address}]" if ":" in address else address
        return f"{self.scheme}://{host}:{self.port}{self.path}{path}"

    async def addresses(self, resolver: Resolver = resolve, allow: Sequence[IPNetwork] = ()) -> list[str]:
        """Resolve the host. CatalogError if an address is not allowed, ConnectionError if there is no address."""
        literal = _parsed(self.host)
        try:
            found = [self.host] if literal is not None else await resolver(self.host, self.port)
        except OSError as error:
            raise ConnectionError(f"{self.host} could not be resolved: {error}. Check base_url") from error
        addresses = list(dict.fromkeys(found))
        if not addresses:
            raise ConnectionError(f"{self.host} has no address. Check base_url")
        # One forbidden address rejects them all: a name that is public and private at once suggests rebinding.
        for address in addresses:
            if not _allowed(address, self.local, allow):
                where = "this machine" if self.local else "the public internet"
                raise CatalogError(
                    f"{self.host} resolves to {address}, which is not on {where}, so nothing was sent. Only a "
                    "base_url of localhost or a loopback address may lead to this machine; the profile can allow "
                    f'internal addresses: network.allow = ["{address}"]'
                )
        return addresses


def _allowed(text: str, local: bool, allow: Sequence[IPNetwork]) -> bool:
    address = _parsed(text)
    if address is None:
        return False
    address = _embedded_ipv4(address)
    if any(address in each for each in allow):
        return True
    if local:
        return address.is_loopback
    if isinstance(address, ipaddress.IPv6Address) and (address.is_site_local or address.teredo is not None):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _embedded_ipv4(address: IPAddress) -> IPAddress:
    """Return the IPv4 address that is embedded in an IPv6 one, else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


@lru_cache(256)
def _parsed(text: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


def _unless_ours(_record: logging.LogRecord) -> bool:
    return not _quiet.get()


# The HTTP library logs status lines and headers of replies, and an API may echo our keys in those.
for _name in ("httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.http2", "httpcore2.proxy"):
    logging.getLogger(_name).addFilter(_unless_ours)

_url = lru_cache(64)(httpx2.URL)  # parsing one takes as long as building the rest of a request

OnSend = Callable[[], Awaitable[None]]


class Halted(Exception):  # noqa: N818 - carries an exception of the caller through the transport
    """`on_send` raised, and nothing was sent."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


class Order(httpx2.AsyncByteStream):
    """The body of a purchase that is sent once or several times.

    `on_send` is awaited each time, on an open connection and before the first byte. If it raises, the order is not
    sent. `attempt.sent` is set right after it.
    """

    ready = False
    """True if `on_send` was awaited; set to False before each attempt to send it, the first one or a retry."""

    def __init__(self, content: bytes, attempt: Attempt, on_send: OnSend | None = None) -> None:
        self.content = content
        self.attempt = attempt
        self._on_send = on_send

    async def before_send(self, is_open: IsOpen = lambda: True) -> None:
        """Await `on_send`, once per attempt. `is_open` returns whether the connection is still open afterwards."""
        if self.ready:
            return
        if self._on_send is not None:
            try:
                await self._on_send()
            except Exception as error:
                raise Halted(error) from error
            # A booking is not interrupted by a cancellation: now it may take effect.
            await anyio.lowlevel.checkpoint_if_cancelled()
        if not is_open():
            raise httpx2.ConnectError("the API closed the connection before anything was sent")
        self.ready = self.attempt.sent = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        # A second guard: whatever a transport has called, no body is sent without `before_send`.
        await self.before_send()
        yield self.content


class Connections:
    """Opens connections for the requests to one API."""

    def __init__(
        self,
        base_url: str,
        credentials: Credentials,
        network: NetworkSettings,
        *,
        resolver: Resolver = resolve,
        connect_timeout: float = CONNECT_TIMEOUT,
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
            "Accept-Encoding": "identity",  # the size of a compressed reply could not be limited while it is read
            "Connection": "close",
        }
        self._resolver = resolver
        self._connect_timeout = connect_timeout
        self._has_proxy = bool(network.proxy)
        self._allow = [ipaddress.ip_network(each, strict=False) for each in network.allow]
        self.closed = False
        """True if nothing may be sent any longer."""
        # Without a client of the HTTP library around it: that handles redirects, cookies and the environment,
        # none of which are wanted here, and takes a tenth of the time of a call.
        self.transport = transport or OneRequestTransport(
            lambda: ssl_context or make_ssl_context(network.ca_file),
            _make_proxy(network.proxy, credentials.proxy),
        )

    @asynccontextmanager
    async def open(
        self, request: OutgoingRequest, limit: float, order: Order | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request and yield the response, whose head was received and whose body can be read."""
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
        if self._has_proxy:
            return [self._base.host]  # the proxy resolves the name and decides which addresses are allowed
        try:
            with anyio.fail_after(self._connect_timeout):
                return await self._base.addresses(self._resolver, self._allow)
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
        if outgoing.method != "GET" or order is not None:
            headers["Content-Length"] = str(len(outgoing.content))
        if order is not None:
            extensions["before_send"] = order.before_send
        while True:
            url = _url(self._base.url(addresses.pop(0), outgoing.target))
            body = order or httpx2.ByteStream(outgoing.content)
            request = httpx2.Request(
                outgoing.method, url, headers=headers, stream=body, extensions=extensions
            )
            try:
                response = await self.transport.handle_async_request(request)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                # The address does not respond: try the next one, unless something was sent.
                if not addresses or (order is not None and order.attempt.sent):
                    raise
            else:
                response.request = request
                return response


def check_value(name: str, value: str) -> None:
    """Reject a header value that could inject other headers. The value is not shown: it may be a secret."""
    if not is_header_value(value):
        raise UsageError(
            f"the value of {name} cannot be sent in a header: it must be printable ASCII without spaces around it. "
            "Was it copied with a line break?"
        )
