"""Sends requests to one origin, with the checked connections of the catalogue.

Owns when a request is sent again: GET and HEAD, after a failure that may pass; anything else never. A redirect is
not followed. Bodies of responses are read up to a limit.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpx2

from toolwire._support.scrubber import Scrubber
from toolwire.catalog.http.answers import (
    PASSING,
    REFUSAL_BYTES,
    Attempt,
    Unreadable,
    collect,
    describe_error,
    is_success,
    parse_retry_after,
)
from toolwire.catalog.http.connection import Connections, Network, Order, Resolver, Retry, resolve
from toolwire.catalog.http.requests import DEFAULT_PORTS, OutgoingRequest
from toolwire.catalog.profile.rules import check_address
from toolwire.catalog.profile.tables import NetworkSettings
from toolwire.catalog.secrets import Credentials
from toolwire.errors import CatalogError, UsageError

SAFE_METHODS: Final = ("GET", "HEAD")
"""Those whose requests may be sent again."""
_PASSING: Final = PASSING - {500}  # a 500 is told at once


@dataclass(frozen=True)
class Received:
    """A response that was read to its end, or as far as it was worth reading. May hold secrets: scrub it."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    """Names in small letters."""
    content: bytes = field(repr=False)


class NotReceived(CatalogError):  # noqa: N818 - what it is
    """There is no response. `sent` tells whether the request may have been carried out."""

    def __init__(self, message: str, *, sent: bool) -> None:
        self.sent = sent
        super().__init__(message)


@dataclass(frozen=True)
class Limits:
    """The limits of one request."""

    timeout: float = 30.0
    """Seconds, retries included."""
    most_bytes: int = 4 * 1024 * 1024
    """Of a response."""


class Sender:
    """Sends requests below one base URL. It has no credentials: requests come with theirs."""

    def __init__(
        self,
        base_url: str,
        network: NetworkSettings,
        *,
        retry: Retry | None = None,
        resolver: Resolver = resolve,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.base_url = base_url
        self._retry = retry or Retry()
        self._connections = Connections(
            base_url, Credentials(), network=Network.of(network), resolver=resolver, ssl_context=ssl_context
        )

    async def send(self, request: OutgoingRequest, limits: Limits, scrubber: Scrubber) -> Received:
        """Send a request and read the response. `NotReceived` if there is none, else `CatalogError`."""
        safe, tries, sent = request.method in SAFE_METHODS, 0, Attempt()
        with anyio.move_on_after(limits.timeout):
            while True:
                tries += 1
                try:
                    received = await self._send_once(request, limits, sent)
                except (httpx2.HTTPError, OSError) as error:
                    if not safe or tries >= self._retry.attempts:
                        raise NotReceived(describe_error(error, scrubber.text), sent=sent.sent) from None
                    pause = self._retry.pause(tries, None)
                else:
                    if not safe or received.status not in _PASSING or tries >= self._retry.attempts:
                        return received
                    pause = self._retry.pause(tries, parse_retry_after(received.headers.get("retry-after")))
                await anyio.sleep(pause)
        raise NotReceived(f"there was no answer within {round(limits.timeout, 2):g} s", sent=sent.sent)

    async def _send_once(self, request: OutgoingRequest, limits: Limits, sent: Attempt) -> Received:
        order = None
        if request.method not in SAFE_METHODS or request.content:
            order = Order(request.content, sent)  # notes in `sent` when the first byte goes out
        async with self._connections.open(request, limits.timeout, order) as response:
            good = is_success(response.status_code)
            most = limits.most_bytes if good else min(REFUSAL_BYTES, limits.most_bytes)
            try:
                content = await collect(response, most, lenient=not good)
            except Unreadable as error:
                raise NotReceived(f"HTTP {response.status_code}: {error}", sent=True) from None
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Received(response.status_code, headers, content)


def split_url(url: str, network: NetworkSettings, what: str) -> tuple[str, str]:
    """Split a URL into its origin and the rest. `UsageError` if no request may go there."""
    try:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        check_address(origin, allow_http=network.allow_http)
    except ValueError as error:
        raise UsageError(f"{what} {error}") from None
    rest = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not rest.isascii() or not rest.isprintable() or " " in rest:
        raise UsageError(f"{what} must be a URL, got {url[:200]!r}")
    return origin, rest


def same_origin(one: str, other: str) -> bool:
    """True if two URLs have the same scheme, host and port."""
    return _origin(one) == _origin(other)


def _origin(url: str) -> tuple[str, str, int | None] | None:
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    return parts.scheme.lower(), (parts.hostname or "").lower(), port
