"""Lets only the browser in that opened the studio's link.

The studio runs tools and talks to Claude, so nobody but its user may reach it: no other user of this machine, and
no web page in the user's browser. A link has a one-time token, which is exchanged for a cookie. Every request must
name a host of this machine, come from no other page, and carry the cookie. Does no I/O of its own.
"""

import hmac
import html
import secrets
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from toolwire._support.addresses import LOOPBACK

_TOKENS_KEPT: Final = 20
_COOKIES_READ: Final = 20
_OTHER_PAGES: Final = ("same-site", "cross-site")
_REFUSED: Final = 403
_MISDIRECTED: Final = 421

# Vue compiles its templates in the browser, which needs 'unsafe-eval'. Nothing can be loaded from, or sent to, any
# other address, whatever a page would be made to run.
POLICY: Final = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "font-src 'self' data:; img-src 'self' data: blob:; media-src 'self' data: blob:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_ONWARDS: Final = "The studio opens."
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>toolwire studio</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">{}</head>
<body><main><h1>toolwire studio</h1><p>{}</p></main></body></html>
"""


class Access:
    """The links that open the studio, and the browser that has opened one."""

    def __init__(self) -> None:
        self._tokens: list[str] = []
        self._key = secrets.token_urlsafe(32)

    def make_link(self, base: str) -> str:
        """Return a link that works once. `base` is the address of the page, such as `http://127.0.0.1:8000/`."""
        token = secrets.token_urlsafe(24)
        self._tokens = [*self._tokens, token][-_TOKENS_KEPT:]
        return f"{base}?token={token}"

    def redeem(self, token: str) -> bool:
        """Use a token up. Returns False if there is none such, or it was used."""
        for each in self._tokens:
            if hmac.compare_digest(each.encode(), token.encode(errors="replace")):
                self._tokens.remove(each)
                return True
        return False

    def find_refusal(self, scope: dict[str, Any]) -> tuple[int, str] | None:
        """Return why a request is refused, as a status and a sentence; None if it is accepted."""
        headers = _read_headers(scope)
        host = headers.get("host", "")
        if _is_repeated(scope, b"host") or not _is_here(host, scope.get("server")):
            return (
                _MISDIRECTED,
                "The studio does not answer for this host. Open the link that the terminal shows.",
            )
        origin = headers.get("origin")
        if _is_repeated(scope, b"origin") or (origin is not None and origin != f"http://{host}"):
            return _REFUSED, "Other pages may not use the studio."
        # A page on another port of this machine is of the same site: its requests for pictures have the cookie, and
        # no origin.
        if headers.get("sec-fetch-site") in _OTHER_PAGES and headers.get("sec-fetch-mode") != "navigate":
            return _REFUSED, "Other pages may not use the studio."
        if origin is None and scope["type"] == "websocket":
            return _REFUSED, "A connection must come from the studio's page."
        key = self._key.encode()
        if not any(hmac.compare_digest(each, key) for each in _read_cookies(scope)):
            return _REFUSED, (
                "This browser has not opened the studio. Open the link that the terminal shows. Each link works "
                "once: press Enter in the terminal for another."
            )
        return None

    def cookie_for(self, scope: dict[str, Any]) -> str:
        """Return the header that makes this browser the one that is let in."""
        return f"{_cookie_name(scope)}={self._key}; HttpOnly; SameSite=Strict; Path=/"


class AccessMiddleware:
    """ASGI middleware in front of the studio, its WebSocket included."""

    def __init__(self, app: Any, access: Access) -> None:
        self.app = app  # the name that NiceGUI follows to find its server
        self._access = access

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self.app(scope, receive, send)
            return
        refused = self._access.find_refusal(scope)
        if scope["type"] == "websocket":
            if refused is None:
                await self.app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008, "reason": refused[1][:100]})
            return
        token = _read_token(scope)
        visits = bool(token) and _is_visit(scope) and (refused is None or refused[0] == _REFUSED)
        redeemed = visits and self._access.redeem(token)
        if visits and (redeemed or refused is None):
            # A page that goes on by itself, not a redirect: after one that began elsewhere (in a file, on another
            # site), a browser would not send the cookie. The token is in no history then.
            cookie = self._access.cookie_for(scope).encode()
            await _answer(send, 200, _ONWARDS, (b"set-cookie", cookie))
            return
        if refused is not None:
            await _answer(send, refused[0], refused[1])
            return

        async def send_guarded(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                kept = [each for each in message.get("headers", ()) if each[0].lower() not in dict(_HEADERS)]
                message = {**message, "headers": [*kept, *_HEADERS]}
            await send(message)

        # There is no proxy in front, and NiceGUI writes what one would say of itself into the page.
        own = [each for each in scope["headers"] if not each[0].lower().startswith(b"x-forwarded-")]
        await self.app({**scope, "headers": own}, receive, send_guarded)


async def _answer(send: Any, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
    onwards = '<meta http-equiv="refresh" content="0;url=/">' if text == _ONWARDS else ""
    body = _PAGE.format(onwards, html.escape(text)).encode()
    fixed = ((b"content-type", b"text/html; charset=utf-8"), (b"cache-control", b"no-store"))
    await send({"type": "http.response.start", "status": status, "headers": [*fixed, *_HEADERS, *headers]})
    await send({"type": "http.response.body", "body": body})


def _read_headers(scope: dict[str, Any]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _is_repeated(scope: dict[str, Any], name: bytes) -> bool:
    return len([header for header, _ in scope["headers"] if header.lower() == name]) > 1


def _is_visit(scope: dict[str, Any]) -> bool:
    """True if a person opens the page: a GET of its address, from no other page."""
    headers = _read_headers(scope)
    return scope["method"] == "GET" and scope["path"] == "/" and "origin" not in headers


def _is_here(host: str, server: Any) -> bool:
    """True if a Host header names this machine and the port that the studio listens on."""
    try:
        parts = urlsplit(f"//{host}")
        return parts.hostname in LOOPBACK and (server is None or (parts.port or 80) == server[1])
    except ValueError:
        return False


def _cookie_name(scope: dict[str, Any]) -> str:
    """Return the cookie's name. Cookies ignore ports, so two studios on one host need different names."""
    return f"toolwire_studio_{(scope.get('server') or ('', 0))[1]}"


def _read_cookies(scope: dict[str, Any]) -> list[bytes]:
    """Return the values of all cookies with the studio's name, at most a few.

    Other servers of this machine set cookies for the same host. Theirs may have any form, and even this name:
    neither may keep the user out. (`http.cookies` reads nothing behind one that it cannot read.)
    """
    wanted, found = _cookie_name(scope).encode(), []
    for header, value in scope["headers"]:
        if header.lower() == b"cookie":
            for each in value.split(b";"):
                name, _, content = each.strip().partition(b"=")
                if name == wanted:
                    found.append(content)
    return found[:_COOKIES_READ]


def _read_token(scope: dict[str, Any]) -> str:
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    return str(query.get("token", [""])[0])
