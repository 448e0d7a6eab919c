"""Sends requests to one origin, over the same restricted connections that the catalogue uses.

Owns retries: GET and HEAD are sent again after a failure that may be temporary; other methods never are. Redirects
are not followed. Response bodies are read up to a limit.
"""

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
from toolwire.catalog.http.connection import Connections, Order, Retry
from toolwire.catalog.http.requests import OutgoingRequest
from toolwire.catalog.profile.rules import check_address, is_plain
from toolwire.catalog.profile.tables import NetworkSettings
from toolwire.catalog.secrets import Credentials
from toolwire.errors import CatalogError, UsageError

SAFE_METHODS: Final = ("GET", "HEAD")
"""Methods whose requests may be sent again."""
_PASSING: Final = PASSING - {500}  # a 500 is reported at once


@dataclass(frozen=True)
class Response:
    """A response; the body of an error may be cut. It may contain secrets: scrub it before showing it."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    """Names in lower case."""
    content: bytes = field(repr=False)


class NoResponse(CatalogError):  # noqa: N818 - what it is
    """No response was received. `sent` is True if the server may have carried out the request."""

    def __init__(self, message: str, *, sent: bool) -> None:
        self.sent = sent
        super().__init__(message)


@dataclass(frozen=True)
class Limits:
    """The limits of one request."""

    timeout: float = 30.0
    """Seconds, retries included."""
    most_bytes: int = 4 * 1024 * 1024
    """The largest response body."""


class Sender:
    """Sends requests to one base URL. It holds no credentials: requests already contain them."""

    def __init__(self, base_url: str, network: NetworkSettings, *, retry: Retry | None = None) -> None:
        self._retry = retry or Retry()
        self._connections = Connections(base_url, Credentials(), network)

    async def send(self, request: OutgoingRequest, limits: Limits, scrubber: Scrubber) -> Response:
        """Send a request and read the response. `NoResponse` if there is none, else `CatalogError`."""
        safe, tries, sent = request.method in SAFE_METHODS, 0, Attempt()
        with anyio.move_on_after(limits.timeout):
            while True:
                tries += 1
                try:
                    response = await self._send_once(request, limits, sent)
                except (httpx2.HTTPError, OSError) as error:
                    if not safe or tries >= self._retry.attempts:
                        raise NoResponse(describe_error(error, scrubber.text), sent=sent.sent) from None
                    pause = self._retry.pause(tries, None)
                else:
                    if not safe or response.status not in _PASSING or tries >= self._retry.attempts:
                        return response
                    pause = self._retry.pause(tries, parse_retry_after(response.headers.get("retry-after")))
                await anyio.sleep(pause)
        raise NoResponse(f"there was no response within {round(limits.timeout, 2):g} s", sent=sent.sent)

    async def _send_once(self, request: OutgoingRequest, limits: Limits, sent: Attempt) -> Response:
        order = None
        if request.method not in SAFE_METHODS or request.content:
            order = Order(request.content, sent)  # sets `sent.sent` when the first byte goes out
        async with self._connections.open(request, limits.timeout, order) as response:
            good = is_success(response.status_code)
            most = limits.most_bytes if good else min(REFUSAL_BYTES, limits.most_bytes)
            try:
                content = await collect(response, most, lenient=not good)
            except Unreadable as error:
                raise NoResponse(f"HTTP {response.status_code}: {error}", sent=True) from None
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Response(response.status_code, headers, content)


def split_url(url: str, network: NetworkSettings, what: str) -> tuple[str, str]:
    """Split a URL into its origin and the rest. `UsageError` if requests to it are not allowed."""
    try:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        check_address(origin, allow_http=network.allow_http)
    except ValueError as error:
        raise UsageError(f"{what} {error}") from None
    rest = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not is_plain(rest):
        raise UsageError(f"{what} must be a valid URL, got {url[:200]!r}")
    return origin, rest
