"""The page that a browser gets at the address of a server: what this is, and how to connect.

It shows a visitor without a token only the name and version of the server, and whether a token is needed. It has no
form, no script and no link. Must not answer any other request (see `find`). The guard checks host and origin before
the page is sent.
"""

import base64
import hashlib
import html
import shlex
from typing import Any, Final
from urllib.parse import quote, urlsplit

from toolwire._support.words import plain_line
from toolwire.mcp.serve.access import Guard, find_header, hostname
from toolwire.tools.names import wire_name

_MAX_NAME: Final = 200  # characters
_HTML: Final = b"text/html"
_MCP_TYPES: Final = {b"text/event-stream", b"application/json"}
_MCP_HEADERS: Final = {b"mcp-session-id", b"mcp-protocol-version", b"last-event-id"}
_UNKNOWN_HOST: Final = "HOST"
_STYLE: Final = (
    ":root{color-scheme:light dark;font:1rem/1.6 system-ui,sans-serif}"
    "body{max-width:42rem;margin:0 auto;padding:1.5rem 1rem}"
    "h1,pre{overflow-wrap:anywhere}"
    "pre{white-space:pre-wrap;padding:.75rem;border:1px solid}"
)
_HEADERS: Final = (
    (b"content-type", b"text/html; charset=utf-8"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'sha256-%b'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        % base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()),
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


class WelcomePage:
    """The page of one server, at the path of MCP and at the root."""

    def __init__(self, server: Any, guard: Guard, path: str) -> None:
        """`server` has the `name` and `version` to show. They are read for each page, since they may change."""
        self._server = server
        self._guard = guard
        self._path = path

    def find(self, scope: dict[str, Any]) -> Any:
        """Return the ASGI application for a GET request if a browser sent it, for one of the paths; else None."""
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        return self._respond if path in (self._path, "/") and _is_browser(scope["headers"]) else None

    async def _respond(self, scope: dict[str, Any], _receive: Any, send: Any) -> None:
        body = self._render(scope).encode()
        headers = [*_HEADERS, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _render(self, scope: dict[str, Any]) -> str:
        name = _line(self._server.name) or "toolwire"
        version = _line(self._server.version)
        host = _find_host(scope, self._guard)
        path = quote(scope.get("root_path", "") + self._path, safe="/~!$&'()*+,;=:@%", errors="replace")
        url = f"{scope.get('scheme', 'http')}://{host}{path}"
        command = (
            f"claude mcp add --transport http {wire_name(name).lstrip('-') or 'toolwire'} {shlex.quote(url)}"
        )
        notes = "No token is needed."
        if self._guard.token is not None:
            command += ' --header "Authorization: Bearer TOKEN"'
            notes = "A token is needed: replace TOKEN by yours. You get one from the operator of this server."
        if host == _UNKNOWN_HOST:
            notes += f" Replace {_UNKNOWN_HOST} by the host in the address bar of your browser."
        shown = [html.escape(each) for each in (name, version, url, command, notes)]
        return _PAGE.format(*shown, style=_STYLE)


_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{0}: an MCP server</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{0}</h1>
<p>This is an MCP server, version {1}, made with toolwire. It offers tools to Claude and other MCP clients; there is
nothing to see in a browser.</p>
<h2>Connect a client</h2>
<p>Give this address to an MCP client that connects over HTTP:</p>
<pre>{2}</pre>
<p>In Claude Code:</p>
<pre>{3}</pre>
<p>{4}</p>
</main>
</body>
</html>
"""


def _is_browser(headers: list[tuple[bytes, bytes]]) -> bool:
    """Return True if a GET request has the headers of a browser that opens a page, and none of an MCP client."""
    accepted = b",".join(value for name, value in headers if name == b"accept").lower()
    types = {each.partition(b";")[0].strip() for each in accepted.split(b",")}
    if _HTML not in types or types & _MCP_TYPES:
        return False
    return all(name not in _MCP_HEADERS for name, _ in headers)


def _find_host(scope: dict[str, Any], guard: Guard) -> str:
    """Return the host and port that the browser has used; a placeholder if the guard does not know the host."""
    header = find_header(scope, b"host") or ""
    host = hostname(header)
    if guard.hosts is None or host not in guard.hosts:
        return _UNKNOWN_HOST
    try:
        port = urlsplit(f"//{header}").port
    except ValueError:
        port = None
    return (f"[{host}]" if ":" in host else host) + (f":{port}" if port is not None else "")


def _line(text: Any) -> str:
    return plain_line(str(text or "")[:_MAX_NAME]).strip()
