"""An HTTP server on loopback that records every request unchanged, and answers as the test says."""

import json
import threading
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from toolwire.openapi.server import OpenAPI
from toolwire.testing import connect


@dataclass
class Request:
    """A recorded request, with its target not decoded."""

    method: str
    target: str
    headers: list
    body: bytes

    def header(self, name):
        """Return all values of a header."""
        return [value for key, value in self.headers if key.lower() == name.lower()]


@dataclass
class Reply:
    """A response. With `status` 0 the server hangs up without one."""

    status: int = 200
    body: bytes = b'{"ok":true}'
    kind: str | None = "application/json"
    headers: dict = field(default_factory=dict)


class EchoApi:
    """The server. It sends `replies` in their order, then always `reply`; `paths` has the replies of some paths."""

    def __init__(self):
        self.requests = []
        self.replies = deque()
        self.reply = Reply()
        self.paths = {}

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def last(self):
        return self.requests[-1]

    def __enter__(self):
        self._server = _Quiet(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request):
        self.requests.append(request)
        if (own := self.paths.get(request.target.partition("?")[0])) is not None:
            return own(request) if callable(own) else own
        return self.replies.popleft() if self.replies else self.reply


class _Quiet(ThreadingHTTPServer):
    """A server that prints nothing when clients hang up."""

    def handle_error(self, *_):
        """Print nothing."""


def _handler(api):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self):
            length = int(self.headers.get("Content-Length") or 0)
            request = Request(self.command, self.path, list(self.headers.items()), self.rfile.read(length))
            reply = api.answer(request)
            if not reply.status:
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.kind is not None:
                self.send_header("Content-Type", reply.kind)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(reply.body)

        def log_message(self, *_):
            """Print nothing."""

    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        setattr(Handler, f"do_{method}", Handler.handle_any)
    return Handler


def document(paths, *, version="3.0.3", **more):
    """Return a document with these paths."""
    head = {"swagger": "2.0"} if version == "2.0" else {"openapi": version}
    return {**head, "info": {"title": "Test", "version": "1"}, "paths": paths, **more}


def operation(*parameters, body=None, **more):
    """Return an operation with these parameters; `body` has the request's schemas by content type."""
    told = {"parameters": list(parameters), "responses": {"200": {"description": "ok"}}, **more}
    if body is not None:
        told["requestBody"] = {"content": body, "required": True}
    return told


async def call(api, given, tool, arguments, **settings):
    """Serve a document for the API, call one of its tools, and return the result."""
    served = OpenAPI(given, environ={}, **{"base_url": api.url if api else None, **settings})
    async with connect(served) as client:
        await served.loaded()
        return await client.call(tool, **arguments)


def as_json(value):
    return json.dumps(value).encode()
