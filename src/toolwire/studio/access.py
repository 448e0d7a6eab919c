"""Access control: only the browser that opened the studio's link may use the studio.

The studio runs tools and talks to Claude, so nobody but its user may reach it: no other user of this machine, and
no other web page in the user's browser. A link contains a one-time token, which is exchanged for a cookie. Every
request must have a loopback host in its `Host` header, must not come from another page, and must carry the cookie.
Does no I/O of its own.
"""

import hmac
import html
import secrets
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from toolwire._support.addresses import LOOPBACK
from toolwire.mcp.serve.access import is_repeated

_TOKENS_KEPT: Final = 20
_COOKIES_READ: Final = 20
_OTHER_PAGES: Final = ("same-site", "cross-site")
_REFUSED: Final = 403
_MISDIRECTED: Final = 421

# Vue compiles its templates in the browser, which needs 'unsafe-eval'. Even a script that an attacker managed to
# run could not load anything from, or send anything to, another address.
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
_OPENING: Final = "Opening the studio."
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>toolwire studio</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">{}</head>
<body><main><h1>toolwire studio</h1><p>{}</p></main></body></html>
"""


class Access:
    """The valid one-time links, and the key that the cookie of an admitted browser contains."""

    def __init__(self) -> None:
        self._tokens: list[str] = []
        self._key = secrets.token_urlsafe(32)

    def make_link(self, base: str) -> str:
        """Return a link that works once. `base` is the address of the page, such as `http://127.0.0.1:8000/`."""
        token = secrets.token_urlsafe(24)
        self._tokens = [*self._tokens, token][-_TOKENS_KEPT:]
        return f"{base}?token={token}"

    def redeem(self, token: str) -> bool:
        """Use up a token. Returns False if the token is unknown or was already used."""
        for each in self._tokens:
            if hmac.compare_digest(each.encode(), token.encode(errors="replace")):
                self._tokens.remove(each)
                return True
        return False

    def find_refusal(self, scope: dict[str, Any]) -> tuple[int, str] | None:
        """Return why a request is refused, as a status and a sentence; None if it is accepted."""
        headers = _read_headers(scope)
        host = headers.get("host", "")
        if is_repeated(scope, b"host") or not _is_own_host(host, scope.get("server")):
            return (
                _MISDIRECTED,
                "This is not the studio's address. Open the link shown in the terminal.",
            )
        origin = headers.get("origin")
        if is_repeated(scope, b"origin") or (origin is not None and origin != f"http://{host}"):
            return _REFUSED, "Requests from other web pages are not allowed."
        # A page on another port of this machine counts as the same site. Its requests for images carry the cookie
        # but no Origin header.
        if headers.get("sec-fetch-site") in _OTHER_PAGES and headers.get("sec-fetch-mode") != "navigate":
            return _REFUSED, "Requests from other web pages are not allowed."
        if origin is None and scope["type"] == "websocket":
            return _REFUSED, "WebSocket connections are only accepted from the studio's own page."
        key = self._key.encode()
        if not any(hmac.compare_digest(each, key) for each in _read_cookies(scope)):
            return _REFUSED, (
                "This browser has no access to the studio. Open the link shown in the terminal. Each link works "
                "once; press Enter in the terminal for a new one."
            )
        return None

    def cookie_for(self, scope: dict[str, Any]) -> str:
        """Return the `Set-Cookie` header that gives a browser access."""
        return f"{_cookie_name(scope)}={self._key}; HttpOnly; SameSite=Strict; Path=/"


class AccessMiddleware:
    """ASGI middleware in front of the studio, its WebSocket included."""

    def __init__(self, app: Any, access: Access) -> None:
        self.app = app  # NiceGUI follows this attribute to find its server
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
        is_visit = bool(token) and _is_visit(scope) and (refused is None or refused[0] == _REFUSED)
        redeemed = is_visit and self._access.redeem(token)
        if is_visit and (redeemed or refused is None):
            # A page that opens the studio by itself, not a redirect: if the navigation began elsewhere (in a file,
            # on another site), the browser would not send the cookie after a redirect. It also keeps the token out
            # of the browser's history.
            cookie = self._access.cookie_for(scope).encode()
            await _respond(send, 200, _OPENING, (b"set-cookie", cookie))
            return
        if refused is not None:
            await _respond(send, refused[0], refused[1])
            return

        async def send_guarded(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                kept = [each for each in message.get("headers", ()) if each[0].lower() not in dict(_HEADERS)]
                message = {**message, "headers": [*kept, *_HEADERS]}
            await send(message)

        # There is no proxy in front of the studio, and NiceGUI would write the values of its headers into the page.
        own = [each for each in scope["headers"] if not each[0].lower().startswith(b"x-forwarded-")]
        await self.app({**scope, "headers": own}, receive, send_guarded)


async def _respond(send: Any, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
    refresh = '<meta http-equiv="refresh" content="0;url=/">' if text == _OPENING else ""
    body = _PAGE.format(refresh, html.escape(text)).encode()
    fixed = ((b"content-type", b"text/html; charset=utf-8"), (b"cache-control", b"no-store"))
    await send({"type": "http.response.start", "status": status, "headers": [*fixed, *_HEADERS, *headers]})
    await send({"type": "http.response.body", "body": body})


def _read_headers(scope: dict[str, Any]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _is_visit(scope: dict[str, Any]) -> bool:
    """True if the user opens the page: a GET request for its address that does not come from another page."""
    headers = _read_headers(scope)
    return scope["method"] == "GET" and scope["path"] == "/" and "origin" not in headers


def _is_own_host(host: str, server: Any) -> bool:
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
    """Return the values of the cookies with the studio's name, at most `_COOKIES_READ`.

    Other servers on this machine set cookies for the same host. Their cookies may be malformed or even have this
    name; neither may lock the user out. (`http.cookies` stops reading at the first malformed cookie.)
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
