"""Decides which HTTP requests are accepted, from their headers alone, for every path.

A web page in the user's browser can reach a server on loopback (by DNS rebinding even under the page's own name).
So a request must name one of the server's hosts, and must not come from a web page unless that page is allowed. If
there is a token, the request must carry it. Does no I/O.
"""

import hmac
import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from toolwire._support.addresses import LOOPBACK, is_loopback
from toolwire.errors import UsageError

_MAX_QUOTE: Final = 200  # characters of a header that an error quotes
_PORTS: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_TOKEN: Final = re.compile(r"[ -~]+")
MISDIRECTED, FORBIDDEN, UNAUTHORIZED = 421, 403, 401


@dataclass(frozen=True)
class Refusal:
    """The reason why a request is refused."""

    status: int
    reason: str


_BAD_REQUEST: Final = 400
_ONCE: Final = (b"host", b"origin", b"authorization")
_REPEATED: Final = Refusal(
    _BAD_REQUEST,
    "Host, Origin and Authorization must not be repeated: which one counts is ambiguous",
)


@dataclass(frozen=True)
class Guard:
    """The rules for accepting requests. With `hosts` None any host is accepted, which is safe only with a token."""

    hosts: frozenset[str] | None
    origins: frozenset[str] = frozenset()
    token: str | None = None

    def refusal(self, headers: Mapping[str, str], *, open_to_all: bool = False) -> Refusal | None:
        """Return why a request with these headers (names in lower case) is refused; None if it is accepted.

        `open_to_all` is for a path that reveals nothing, such as a health check: it needs no token.
        """
        host = hostname(headers.get("host", ""))
        if self.hosts is not None and host not in self.hosts:
            return Refusal(
                MISDIRECTED, f"This server does not accept requests for the host {host[:_MAX_QUOTE]!r}"
            )
        origin = headers.get("origin")
        if origin is not None and not self.allows_origin(origin):
            return Refusal(FORBIDDEN, f"Web pages of {origin[:_MAX_QUOTE]!r} may not use this server")
        if self.token is not None and not open_to_all and not self._carries_token(headers):
            return Refusal(UNAUTHORIZED, "A bearer token is required")
        return None

    def allows_origin(self, origin: str) -> bool:
        """Return True if a web page of that origin may use the server: it is allowed, or on this machine."""
        if origin in self.origins:
            return True
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and parts.hostname in LOOPBACK and self.hosts is not None

    def _carries_token(self, headers: Mapping[str, str]) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        expected = (self.token or "").encode()  # ASCII: `guard_for` checks that
        return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), expected)


def guard_for(host: str, token: str | None, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> Guard:
    """Make the guard of a server bound to `host`. Names are given as users write them.

    Raises `UsageError` if a token is needed and there is none, and for a name that no request could ever match.
    """
    token = None if token is None else _clean_token(token)
    names, pages = {clean_host(each) for each in hosts}, frozenset(map(clean_origin, origins))
    if is_loopback(host):
        return Guard(frozenset({*LOOPBACK, clean_host(host), *names}), pages, token)
    if token is None:
        raise UsageError(
            f"{host} can be reached from other machines, so a token is needed: set TOOLWIRE_TOKEN "
            "(or --token-file), or serve on 127.0.0.1"
        )
    return Guard(frozenset({*names, clean_host(host)}) if names else None, pages, token)


def _clean_token(token: str) -> str:
    token = token.strip()  # files with secrets end in a newline
    if not token:
        raise UsageError("the token is empty: use a long random one")
    if not _TOKEN.fullmatch(token):
        raise UsageError(
            "the token has characters that a header cannot carry: use letters, digits and -._~+/="
        )
    return token


def clean_host(given: str) -> str:
    """Normalise a host to the form that `hostname()` returns. Raises `UsageError` if it is not a host."""
    name = given.strip()
    for each in (name.removeprefix("[").removesuffix("]"), hostname(name)):
        with suppress(ValueError):
            return str(ipaddress.ip_address(each))
    name = hostname(name).removesuffix(".")
    with suppress(UnicodeError):
        name = name.encode("idna").decode()
    if not _NAME.fullmatch(name) or set(given) & set("/@?#"):
        raise UsageError(f"{given!r} is not a host name: use one such as tools.example.com")
    return name


def clean_origin(given: str) -> str:
    """Normalise an origin to the form that browsers send. Raises `UsageError` if it is not an origin."""
    wrong = UsageError(f"{given!r} is not an origin of web pages: use one such as https://example.com")
    try:
        parts = urlsplit(given.strip())
        port = parts.port
    except ValueError:
        raise wrong from None
    more = parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc
    if not parts.scheme or not parts.hostname or more:
        raise wrong
    if parts.scheme not in _PORTS:  # for example of a browser extension, whose host is an id
        return f"{parts.scheme}://{parts.netloc}"
    host = clean_host(parts.hostname)
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" + (f":{port}" if port not in (None, _PORTS[parts.scheme]) else "")


def hostname(header: str) -> str:
    """Return the host in a Host header, without its port."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def find_header(scope: Mapping[str, Any], name: bytes) -> str | None:
    """Return the first header of an ASGI request with this name (in lower case); None if there is none."""
    return next((value.decode("latin-1") for each, value in scope["headers"] if each == name), None)


def is_repeated(scope: Mapping[str, Any], name: bytes) -> bool:
    """Return True if an ASGI request has more than one header with this name (in lower case)."""
    return [header.lower() for header, _ in scope["headers"]].count(name) > 1


class GuardMiddleware:
    """ASGI middleware that refuses requests which a guard does not accept."""

    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        guard: Guard,
        open_paths: Iterable[str] = (),
        on_authorised: Callable[[dict[str, Any]], None] = lambda _scope: None,
        find_page: Callable[[dict[str, Any]], Callable[..., Awaitable[None]] | None] = lambda _scope: None,
    ) -> None:
        """`on_authorised` is called with the scope of each accepted request, except those that are open to all.

        `open_paths` are open to all, and so are GET requests for which `find_page` returns an application.
        """
        self._app = app
        self._guard = guard
        self._on_authorised = on_authorised
        self._open = frozenset(open_paths)
        self._find_page = find_page

    def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Awaitable[None]:
        if scope["type"] == "http":
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            page = self._find_page(scope) if scope["method"] == "GET" else None
            open_to_all = page is not None or scope["path"] in self._open
            if len(headers) < len(scope["headers"]) and any(is_repeated(scope, name) for name in _ONCE):
                refused: Refusal | None = _REPEATED
            else:
                refused = self._guard.refusal(headers, open_to_all=open_to_all)
            if refused is not None:
                return _refuse(refused, send)
            if page is not None:
                return page(scope, receive, send)
            if not open_to_all:
                self._on_authorised(scope)
        return self._app(scope, receive, send)


async def _refuse(refused: Refusal, send: Any) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    if refused.status == UNAUTHORIZED:
        headers.append((b"www-authenticate", b'Bearer realm="toolwire"'))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": refused.reason.encode()})
