"""Who may talk to a server over HTTP: decided here from the headers alone, for every path.

A page in the user's browser can reach a server on loopback (by DNS rebinding even under its own name), so requests
must name a host that we answer for, and come from no page or from one that was allowed. A token, when there is
one, must come along. It does no I/O.
"""

import hmac
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from toolwire._support.addresses import LOOPBACK, is_loopback
from toolwire.errors import UsageError

_QUOTED: Final = 200  # characters of a header that an error quotes
_PORTS: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_TOKEN: Final = re.compile(r"[ -~]+")
MISDIRECTED, FORBIDDEN, UNAUTHORIZED = 421, 403, 401


@dataclass(frozen=True)
class Refusal:
    """Why a request goes no further."""

    status: int
    reason: str


@dataclass(frozen=True)
class Guard:
    """What is let through. `hosts` None: any, which only a token makes safe."""

    hosts: frozenset[str] | None
    origins: frozenset[str] = frozenset()
    token: str | None = None

    def refusal(self, headers: Mapping[str, str], *, open_to_all: bool = False) -> Refusal | None:
        """Why a request with these headers (names in lower case) is refused. None if it is not.

        `open_to_all` is for what tells nothing, such as a health check: it needs no token.
        """
        host = hostname(headers.get("host", ""))
        if self.hosts is not None and host not in self.hosts:
            return Refusal(MISDIRECTED, f"This server does not answer for the host {host[:_QUOTED]!r}")
        origin = headers.get("origin")
        if origin is not None and not self.allows_origin(origin):
            return Refusal(FORBIDDEN, f"Pages of {origin[:_QUOTED]!r} may not use this server")
        if self.token is not None and not open_to_all and not self._carries_token(headers):
            return Refusal(UNAUTHORIZED, "A bearer token is required")
        return None

    def allows_origin(self, origin: str) -> bool:
        """Whether a page of that origin may ask: one that was named, or one on this machine."""
        if origin in self.origins:
            return True
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and parts.hostname in LOOPBACK and self.hosts is not None

    def _carries_token(self, headers: Mapping[str, str]) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        expected = (self.token or "").encode()  # ASCII: `guard_for` sees to it
        return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), expected)


def guard_for(host: str, token: str | None, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> Guard:
    """The guard of a server bound to `host`, with names as people write them.

    UsageError if that needs a token and there is none, and for what no request could ever match.
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
    token = token.strip()  # of the newline that secrets come with
    if not token:
        raise UsageError("the token is empty: give a long random one")
    if not _TOKEN.fullmatch(token):
        raise UsageError(
            "the token has characters that a header cannot carry: use letters, digits and -._~+/="
        )
    return token


def clean_host(given: str) -> str:
    """A host as `hostname()` would find it in a header. UsageError for what is none."""
    name = given.strip()
    for each in (name.removeprefix("[").removesuffix("]"), hostname(name)):
        with suppress(ValueError):
            return str(ipaddress.ip_address(each))
    name = hostname(name).removesuffix(".")
    with suppress(UnicodeError):
        name = name.encode("idna").decode()
    if not _NAME.fullmatch(name) or set(given) & set("/@?#"):
        raise UsageError(f"{given!r} is no name of a host: that is one such as tools.example.com")
    return name


def clean_origin(given: str) -> str:
    """An origin as browsers send it. UsageError for what is none."""
    wrong = UsageError(f"{given!r} is no origin of web pages: that is one such as https://example.com")
    try:
        parts = urlsplit(given.strip())
        port = parts.port
    except ValueError:
        raise wrong from None
    more = parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc
    if not parts.scheme or not parts.hostname or more:
        raise wrong
    if parts.scheme not in _PORTS:  # of an extension, say, whose host is an id
        return f"{parts.scheme}://{parts.netloc}"
    host = clean_host(parts.hostname)
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" + (f":{port}" if port not in (None, _PORTS[parts.scheme]) else "")


def hostname(header: str) -> str:
    """The host in a Host header, without its port."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


class Guarded:
    """An ASGI application behind a guard."""

    def __init__(
        self,
        app: Callable[..., Any],
        guard: Guard,
        open_paths: Iterable[str] = (),
        authorised: Callable[[dict[str, Any]], None] = lambda _scope: None,
    ) -> None:
        """`authorised` is called with the scope of each request that is let through, but for `open_paths`."""
        self._app = app
        self._guard = guard
        self._authorised = authorised
        self._open = frozenset(open_paths)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            open_to_all = scope["path"] in self._open
            refused = self._guard.refusal(headers, open_to_all=open_to_all)
            if refused is not None:
                await _refuse(refused, send)
                return
            if not open_to_all:
                self._authorised(scope)
        await self._app(scope, receive, send)


async def _refuse(refused: Refusal, send: Any) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    if refused.status == UNAUTHORIZED:
        headers.append((b"www-authenticate", b'Bearer realm="toolwire"'))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": refused.reason.encode()})
