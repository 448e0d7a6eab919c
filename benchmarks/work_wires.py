"""The other side of a hot path: a CLI without a process, and a web server without a socket.

The library is used through its public API. One seam is taken: where a process would be started, `Wires` stands and
is fed with the bytes that the CLI would send. So what is counted is ours, and the same at every run.
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
"""Does so many units of work."""


class Wires:
    """Stands where the process would be."""

    def __init__(self) -> None:
        self.listener: Any = None
        self.initialize: dict[str, Any] = {}
        self.last = b""
        self._left = 0
        self._answered: asyncio.Future[None] | None = None

    async def open(self, listener: Any) -> None:
        self.listener = listener

    def write(self, line: bytes) -> None:
        if self._answered is not None:
            self.last = line
            self._left -= line.count(b"\n") if self._left > 1 else 1  # to count in a long line costs much
            if self._left <= 0:
                self._answered.set_result(None)
                self._answered = None
        elif not self.initialize:
            self.initialize = json.loads(line)
            told = {"subtype": "success", "request_id": self.initialize["request_id"], "response": {"pid": 1}}
            answer = encoded({"type": "control_response", "response": told})
            asyncio.get_running_loop().call_soon(self.listener.data_received, answer)

    async def drain(self) -> None: ...

    def end_input(self) -> None: ...

    def kill(self) -> None: ...

    async def stop(self) -> None:
        self.listener.ended(None)

    async def answers(self, chunk: bytes, count: int) -> None:
        """Feed questions and wait until so many lines were written."""
        self._left = count
        answered = self._answered = asyncio.get_running_loop().create_future()
        self.listener.data_received(chunk)
        await answered

    def asking(self, blocks: list[bytes], depth: int, expected: bytes) -> Turn:
        """A turn that feeds such blocks of questions; the answers must have that in them."""
        chunks = itertools.cycle(blocks)

        async def turn(units: int) -> None:
            for _ in range(units // depth):
                await self.answers(next(chunks), depth)
            if expected not in self.last:
                raise ValueError(f"a wrong answer: {self.last[:300]!r}")

        return turn


def encoded(message: dict[str, Any]) -> bytes:
    """A line of the conversation."""
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


@asynccontextmanager
async def conversation(**options: Any) -> AsyncIterator[tuple[Wires, Any]]:
    """A connected client, and its wires."""
    wires = Wires()
    started = _connect.process_pipe
    _connect.process_pipe = lambda _command: wires
    try:
        client = toolwire.ClaudeSDKClient(toolwire.ClaudeAgentOptions(cli_path=sys.executable, **options))
        await client.connect()
    finally:
        _connect.process_pipe = started
    try:
        yield wires, client
    finally:
        wires.listener.ended(0)
        await client.disconnect()


class Caller:
    """The server's side of ASGI, with the client's headers."""

    def __init__(self, app: Any) -> None:
        self._app = app
        accept = (b"accept", b"application/json, text/event-stream")
        self._headers = [(b"host", b"127.0.0.1:8000"), (b"content-type", b"application/json"), accept]

    async def post(self, message: dict[str, Any]) -> bytes:
        """The body of the answer."""
        body = json.dumps(message).encode()
        given = [{"type": "http.request", "body": body, "more_body": False}]
        gone, came = asyncio.get_running_loop().create_future(), []

        async def receive() -> Any:
            return given.pop() if given else await gone

        async def send(event: Any) -> None:
            if event["type"] == "http.response.start":
                self._remember(event["headers"])
            else:
                came.append(event.get("body", b""))

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
        return b"".join(came)

    def _remember(self, headers: Any) -> None:
        session = dict(headers).get(b"mcp-session-id")
        if session is not None and len(self._headers) == 3:  # noqa: PLR2004 - the three from above
            self._headers += [(b"mcp-session-id", session), (b"mcp-protocol-version", b"2025-11-25")]
