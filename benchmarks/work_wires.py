"""Stand-ins for the other side of a hot path: a CLI without a process, and a web server without a socket.

The library is used through its public API, except in one place: instead of starting a process, it gets a
`FakePipe`, which is fed with the bytes that the CLI would send. So only the library's work is counted, the same in
every run.
"""

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import toolwire
from toolwire._conversation import wiring as _connect

Turn = Callable[[int], Awaitable[None]]
"""Does the given number of units of work."""


class FakePipe:
    """Replaces the CLI's process: responds to `initialize`, and counts the lines that the library writes."""

    def __init__(self) -> None:
        self.listener: Any = None
        self.initialize: dict[str, Any] = {}
        self.last = b""
        self._left = 0
        self._written: asyncio.Future[None] | None = None

    async def open(self, listener: Any) -> None:
        self.listener = listener

    def write(self, line: bytes) -> None:
        if self._written is not None:
            self.last = line
            # With one line left there is nothing to count: searching a long line for newlines would be expensive.
            self._left -= line.count(b"\n") if self._left > 1 else 1
            if self._left <= 0:
                self._written.set_result(None)
                self._written = None
        elif not self.initialize:
            self.initialize = json.loads(line)
            response = {
                "subtype": "success",
                "request_id": self.initialize["request_id"],
                "response": {"pid": 1},
            }
            reply = encode({"type": "control_response", "response": response})
            asyncio.get_running_loop().call_soon(self.listener.data_received, reply)

    async def drain(self) -> None: ...

    def end_input(self) -> None: ...

    def kill(self) -> None: ...

    async def stop(self) -> None:
        self.listener.ended(None)

    async def feed_and_wait(self, chunk: bytes, count: int) -> None:
        """Feed requests to the library, and wait until it has written `count` lines."""
        self._left = count
        written = self._written = asyncio.get_running_loop().create_future()
        self.listener.data_received(chunk)
        await written

    def make_turn(self, blocks: list[bytes], depth: int, expected: bytes) -> Turn:
        """Return a turn that feeds these blocks of requests; the last response must contain `expected`."""
        chunks = itertools.cycle(blocks)

        async def turn(units: int) -> None:
            for _ in range(units // depth):
                await self.feed_and_wait(next(chunks), depth)
            if expected not in self.last:
                raise ValueError(f"wrong response, without {expected!r}: {self.last[:300]!r}")

        return turn


def encode(message: dict[str, Any]) -> bytes:
    """Encode a message as a line of JSON."""
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


@asynccontextmanager
async def open_conversation(**options: Any) -> AsyncIterator[tuple[FakePipe, Any]]:
    """Connect a client to a `FakePipe`. Yields both."""
    pipe = FakePipe()
    started = _connect.process_pipe
    _connect.process_pipe = lambda _command: pipe
    try:
        client = toolwire.ClaudeSDKClient(toolwire.ClaudeAgentOptions(cli_path=sys.executable, **options))
        await client.connect()
    finally:
        _connect.process_pipe = started
    try:
        yield pipe, client
    finally:
        pipe.listener.ended(0)
        await client.disconnect()


class AsgiClient:
    """Calls an ASGI application as a web server would, with the headers of an MCP client."""

    def __init__(self, app: Any) -> None:
        self._app = app
        accept = (b"accept", b"application/json, text/event-stream")
        self._headers = [(b"host", b"127.0.0.1:8000"), (b"content-type", b"application/json"), accept]

    async def post(self, message: dict[str, Any]) -> bytes:
        """Send a POST request. Returns the body of the response."""
        body = json.dumps(message).encode()
        events = [{"type": "http.request", "body": body, "more_body": False}]
        disconnected, chunks = asyncio.get_running_loop().create_future(), []

        async def receive() -> Any:
            return events.pop() if events else await disconnected

        async def send(event: Any) -> None:
            if event["type"] == "http.response.start":
                self._remember(event["headers"])
            else:
                chunks.append(event.get("body", b""))

        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST"}
        scope |= {
            "path": "/mcp",
            "raw_path": b"/mcp",
            "root_path": "",
            "scheme": "http",
            "query_string": b"",
            "state": {},
        }
        scope |= {"client": ("127.0.0.1", 5000), "server": ("127.0.0.1", 8000)}
        headers = [*self._headers, (b"content-length", str(len(body)).encode())]
        await self._app({**scope, "headers": headers}, receive, send)
        return b"".join(chunks)

    def _remember(self, headers: Any) -> None:
        """Add the headers of the MCP session, once the server has created it."""
        session = dict(headers).get(b"mcp-session-id")
        if session is not None and len(self._headers) == 3:  # noqa: PLR2004 - only the three from __init__
            self._headers += [(b"mcp-session-id", session), (b"mcp-protocol-version", b"2025-11-25")]
