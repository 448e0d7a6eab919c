"""The HTTP transport: each request has a connection of its own, which is opened first, used once and closed.

Owns how a connection is made (directly, or through a proxy) and the moment between "connected" and the first byte
of the request, when `extensions["before_send"]` is awaited. That callback gets a function that returns whether the
connection is still open; if the callback raises, nothing of the request was sent. A connection is never reused: if
the server closed it at that very moment, it would be uncertain whether the order was received.

asyncio's own transports are used rather than anyio's streams: connecting takes 0.1 ms instead of 0.55.
"""

import asyncio
import base64
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

import anyio
import httpcore2
import httpx2

from toolwire._support.tasks import on_trio

IsOpen = Callable[[], bool]
BeforeSend = Callable[[IsOpen], Awaitable[None]]

_TUNNEL_OPEN: Final = range(200, 300)
_MOST_UNREAD: Final = 256 * 1024


class OneRequestTransport(httpx2.AsyncBaseTransport):
    """Sends each request over a connection of its own. The URL has a checked address instead of the host name."""

    def __init__(self, ssl_context: Callable[[], ssl.SSLContext], proxy: httpx2.Proxy | None = None) -> None:
        self._make_ssl_context = ssl_context
        self._ssl_context: ssl.SSLContext | None = None
        self._proxy = proxy

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Connect, await `before_send`, send, and read the head of the response."""
        with _httpx_errors():
            stream = await self._connect(request)
            try:
                before_send: BeforeSend | None = request.extensions.get("before_send")
                if before_send is not None:
                    await before_send(lambda: _is_open(stream))
                return await _send(stream, request)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await stream.aclose()
                raise

    async def _connect(self, request: httpx2.Request) -> httpcore2.AsyncNetworkStream:
        url, timeout = request.url, request.extensions["timeout"]["connect"]
        server = request.extensions["sni_hostname"]
        context = self._context() if url.scheme == "https" else None
        port = url.port or (80 if context is None else 443)
        with _timeout_as(httpx2.ConnectTimeout(f"no connection within {timeout:g} s"), timeout):
            if self._proxy is None:
                return await connect(url.host, port, context, server)
            proxy = self._proxy.url
            proxy_context = None
            if proxy.scheme == "https":
                proxy_context = self._proxy.ssl_context or self._context()
            proxy_port = proxy.port or (80 if proxy_context is None else 443)
            stream = await connect(proxy.host, proxy_port, proxy_context, proxy.host)
            try:
                return await self._tunnel(stream, request.headers["Host"], server, port, context)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await stream.aclose()
                raise

    async def _tunnel(
        self,
        stream: httpcore2.AsyncNetworkStream,
        host: str,
        server: str,
        port: int,
        context: ssl.SSLContext | None,
    ) -> httpcore2.AsyncNetworkStream:
        """Open a tunnel to the server through the proxy, which resolves the name."""
        assert self._proxy is not None  # noqa: S101 - for the type checker
        name = f"[{server}]" if ":" in server else server
        headers = [(b"Host", host.encode()), *self._proxy.headers.raw]
        if self._proxy.raw_auth is not None:
            login = base64.b64encode(b":".join(self._proxy.raw_auth))
            headers.append((b"Proxy-Authorization", b"Basic " + login))
        url = httpcore2.URL(scheme=b"http", host=name.encode(), port=port, target=f"{name}:{port}".encode())
        connection = httpcore2.AsyncHTTP11Connection(origin=url.origin, stream=stream)
        response = await connection.handle_async_request(httpcore2.Request(b"CONNECT", url, headers=headers))
        if response.status not in _TUNNEL_OPEN:
            raise httpx2.ProxyError(f"the proxy refused to connect to {server}: HTTP {response.status}")
        opened: httpcore2.AsyncNetworkStream = response.extensions["network_stream"]
        return opened if context is None else await opened.start_tls(context, server_hostname=server)

    def _context(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            self._ssl_context = self._make_ssl_context()
        return self._ssl_context


async def connect(
    address: str, port: int, context: ssl.SSLContext | None, server: str
) -> httpcore2.AsyncNetworkStream:
    """Open a connection to an address; with TLS for the server name if there is a context."""
    if on_trio():
        stream = await httpcore2.TrioBackend().connect_tcp(address, port)
        return stream if context is None else await stream.start_tls(context, server_hostname=server)
    _, stream = await asyncio.get_running_loop().create_connection(
        _AsyncioStream, address, port, ssl=context, server_hostname=None if context is None else server
    )
    return stream


def _is_open(stream: httpcore2.AsyncNetworkStream) -> bool:
    """True if a request can be sent. A server that writes before it has received a request is closing."""
    if not stream.get_extra_info("is_readable"):
        return True
    if not on_trio() or stream.get_extra_info("ssl_object") is None:
        return False
    # On trio this is the socket below TLS, where received bytes need not be data from the server: TLS 1.3 sends
    # session tickets after the handshake. Only the end of the connection can be recognized.
    below = stream.get_extra_info("socket")
    try:
        with socket.fromfd(below.fileno(), below.family, below.type) as copy:
            copy.setblocking(False)
            return copy.recv(1, socket.MSG_PEEK) != b""
    except OSError:
        return False


async def _send(stream: httpcore2.AsyncNetworkStream, request: httpx2.Request) -> httpx2.Response:
    url = httpcore2.URL(
        scheme=request.url.raw_scheme,
        host=request.url.raw_host,
        port=request.url.port,
        target=request.url.raw_path,
    )
    connection = httpcore2.AsyncHTTP11Connection(origin=url.origin, stream=stream)
    response = await connection.handle_async_request(
        httpcore2.Request(
            request.method,
            url,
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
    )
    return httpx2.Response(response.status, headers=response.headers, stream=_Body(response, connection))


class _Body(httpx2.AsyncByteStream):
    """The body of a response; closing it closes the connection."""

    def __init__(self, response: httpcore2.Response, connection: httpcore2.AsyncHTTP11Connection) -> None:
        self._response = response
        self._connection = connection

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _httpx_errors():
            async for part in self._response.aiter_stream():
                yield part

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            try:
                await self._response.aclose()
            finally:
                await self._connection.aclose()


class _AsyncioStream(asyncio.Protocol, httpcore2.AsyncNetworkStream):
    """A connection on asyncio's own transport. Timeouts are left to the cancel scopes of the caller."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._received = bytearray()
        self._ended = False
        self._last_read_waited = True
        self._error: Exception | None = None
        self._waiting: asyncio.Future[None] | None = None

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport does not derive from it

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > _MOST_UNREAD:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._error = exc
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # Called by the HTTP library.

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109, ARG002 - the interface
        """Return the bytes that have arrived, waiting for some if necessary; nothing at the end.

        At least every second read lets other tasks run: a server may send faster than its data is parsed.
        """
        if self._received and not self._last_read_waited:
            await asyncio.sleep(0)
        self._last_read_waited = not self._received
        while not self._received and not self._ended:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        if not self._received and self._error is not None:
            raise httpcore2.ReadError(str(self._error)) from self._error
        data = bytes(self._received[:max_bytes])
        del self._received[:max_bytes]
        self._transport.resume_reading()
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109, ARG002
        """Write the bytes; those that the system does not accept at once are buffered."""
        if self._ended and self._error is not None:
            raise httpcore2.WriteError(str(self._error)) from self._error
        self._transport.write(buffer)

    async def aclose(self) -> None:
        """Close at once: the response was read, or is not needed."""
        self._transport.abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109, ARG002
    ) -> httpcore2.AsyncNetworkStream:
        """Upgrade the connection to TLS."""
        loop = asyncio.get_running_loop()
        transport = await loop.start_tls(self._transport, self, ssl_context, server_hostname=server_hostname)
        if transport is None:
            raise httpcore2.ConnectError("the connection was closed during the TLS handshake")
        self._transport = transport
        return self

    def get_extra_info(self, info: str) -> Any:
        """`is_readable`: True if the server has written something, or has closed."""
        if info == "is_readable":
            return bool(self._received) or self._ended
        return self._transport.get_extra_info(info)


_ERRORS: Final = {
    httpcore2.ConnectError: httpx2.ConnectError,
    httpcore2.ConnectTimeout: httpx2.ConnectTimeout,
    httpcore2.ReadError: httpx2.ReadError,
    httpcore2.ReadTimeout: httpx2.ReadTimeout,
    httpcore2.WriteError: httpx2.WriteError,
    httpcore2.WriteTimeout: httpx2.WriteTimeout,
    httpcore2.LocalProtocolError: httpx2.LocalProtocolError,
    httpcore2.RemoteProtocolError: httpx2.RemoteProtocolError,
    httpcore2.ProxyError: httpx2.ProxyError,
}


@contextmanager
def _httpx_errors() -> Iterator[None]:
    """Translate the exceptions of httpcore2 into those of httpx2."""
    try:
        yield
    except tuple(_ERRORS) as error:
        raise _ERRORS[type(error)](str(error)) from error


@contextmanager
def _timeout_as(error: Exception, seconds: float) -> Iterator[None]:
    """Raise the given error after that many seconds, and a `ConnectError` for an OSError."""
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError:
        raise error from None
    except OSError as failure:
        raise httpx2.ConnectError(str(failure)) from failure
