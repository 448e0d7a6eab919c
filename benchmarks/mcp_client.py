"""A neutral MCP client: raw lines and raw HTTP, from the standard library alone.

What it sends while it times is made before, and what comes back is looked at afterwards, so that the time is that
of the server as far as that is possible.
"""

import contextlib
import json
import os
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from typing import IO, Any, Self

SESSION = "2025-11-25"
MODERN = "2026-07-28"
_INFO = {"name": "bench", "version": "1"}
_ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": _INFO,
    "io.modelcontextprotocol/clientCapabilities": {},
}
_HELLO = {"protocolVersion": SESSION, "capabilities": {}, "clientInfo": _INFO}
_CHUNK = 1 << 20
_WAIT = 60.0

Asked = tuple[str, dict[str, Any]]
"""A method and its parameters."""


class Timed:
    """How long each request took, how long all of them, and what came back."""

    def __init__(self, times: list[int], took: float, replies: list[bytes]) -> None:
        self.times = times
        """Nanoseconds."""
        self.took = took
        """Seconds."""
        self.replies = replies


class Stdio:
    """A client of a server over its stdin and stdout."""

    def __init__(self, lines_out: IO[bytes], lines_in: IO[bytes], version: str) -> None:
        self._out, self._in = lines_out.fileno(), lines_in.fileno()
        self._modern = version == MODERN
        self._ids = 0
        if not self._modern:
            self.timed([("initialize", _HELLO)])
            os.write(self._out, _encoded({"jsonrpc": "2.0", "method": "notifications/initialized"}) + b"\n")

    def made(self, asked: Asked) -> bytes:
        """A request as it goes over the wire."""
        self._ids += 1
        return _encoded(_request(self._ids, asked, self._modern)) + b"\n"

    def timed(self, requests: Sequence[Asked]) -> Timed:
        """Send them one after the other."""
        ready = [self.made(each) for each in requests]
        clock, write, read, out, come = time.perf_counter_ns, os.write, os.read, self._out, self._in
        times, replies = [], []
        begun = clock()
        for line in ready:
            start = clock()
            write(out, line)
            reply = read(come, _CHUNK)
            while not reply.endswith(b"\n"):
                more = read(come, _CHUNK)
                if not more:
                    raise EOFError
                reply += more
            times.append(clock() - start)
            replies.append(reply)
        return Timed(times, (clock() - begun) / 1e9, replies)

    def flooded(self, requests: Sequence[Asked], depth: int) -> Timed:
        """Keep so many open at once."""
        ready = [self.made(each) for each in requests]
        replies, sent, got = [], depth, 0
        begun = time.perf_counter_ns()
        os.write(self._out, b"".join(ready[:depth]))
        while got < len(ready):
            chunk = os.read(self._in, _CHUNK)
            if not chunk:
                raise EOFError
            replies.append(chunk)
            ended = chunk.count(b"\n")
            got += ended
            if more := b"".join(ready[sent : sent + ended]):
                os.write(self._out, more)
            sent += ended
        return Timed([], (time.perf_counter_ns() - begun) / 1e9, b"".join(replies).splitlines())


class Http:
    """A client of a server over HTTP: one connection that is kept, and one session where the version has them."""

    def __init__(self, port: int, version: str) -> None:
        self._port = port
        self._modern = version == MODERN
        self._version = version
        self._ids = 0
        self._session = ""
        self.wire = _connected(port)
        if not self._modern:
            hello = self.timed([("initialize", _HELLO)]).replies[0]
            head = hello.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
            named = dict(line.lower().split(": ", 1) for line in head[1:])
            self._session = named["mcp-session-id"]
            self._exchange(self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}, None))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._session:
            head = (
                f"DELETE /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nMcp-Session-Id: {self._session}\r\n"
            )
            with contextlib.suppress(OSError, EOFError):  # the connection may be gone
                self._exchange(f"{head}Accept: application/json, text/event-stream\r\n\r\n".encode())
        self.wire.close()

    def made(self, asked: Asked) -> bytes:
        """A request as it goes over the wire."""
        self._ids += 1
        return self._post(_request(self._ids, asked, self._modern), asked)

    def _post(self, message: dict[str, Any], asked: Asked | None) -> bytes:
        body = _encoded(message)
        head = [
            "POST /mcp HTTP/1.1",
            f"Host: 127.0.0.1:{self._port}",
            "User-Agent: bench/1",
            "Accept: application/json, text/event-stream",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        if self._modern and asked is not None:
            head.append(f"Mcp-Method: {asked[0]}")
            if "name" in asked[1]:
                head.append(f"Mcp-Name: {asked[1]['name']}")
        if message.get("method") != "initialize":
            head.append(f"Mcp-Protocol-Version: {self._version}")
        if self._session:
            head.append(f"Mcp-Session-Id: {self._session}")
        return "\r\n".join(head).encode() + b"\r\n\r\n" + body

    def _exchange(self, request: bytes) -> bytes:
        self.wire.sendall(request)
        reply = self.wire.recv(_CHUNK)
        while not complete(reply):
            more = self.wire.recv(_CHUNK)
            if not more:
                raise EOFError
            reply += more
        return reply

    def wake(self) -> None:
        """Be connected, though the server may have closed a connection that was not used."""
        with contextlib.suppress(OSError, EOFError):
            self._exchange(self.made(("tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}})))
            return
        self.wire.close()
        self.wire = _connected(self._port)

    def timed(self, requests: Sequence[Asked]) -> Timed:
        """Send them one after the other."""
        ready = [self.made(each) for each in requests]
        if self._session or self._modern:
            self.wake()
        clock, exchange = time.perf_counter_ns, self._exchange
        times, replies = [], []
        begun = clock()
        for each in ready:
            start = clock()
            reply = exchange(each)
            times.append(clock() - start)
            replies.append(reply)
        return Timed(times, (clock() - begun) / 1e9, replies)


def flooded(clients: Sequence[Http], requests: Sequence[Asked]) -> Timed:
    """Send them over several connections, each one after the other; together."""
    share = len(requests) // len(clients)
    ready = [[each.made(asked) for asked in requests[:share]] for each in clients]
    replies: list[bytes] = []
    for each in clients:
        each.wake()
    with selectors.DefaultSelector() as poll:
        begun = time.perf_counter_ns()
        for client, own in zip(clients, ready, strict=True):
            queue = iter(own)
            client.wire.sendall(next(queue))
            poll.register(client.wire, selectors.EVENT_READ, [queue, b""])
        while len(replies) < share * len(clients):
            events = poll.select(_WAIT)
            if not events:
                raise TimeoutError(f"no answer within {_WAIT} s")
            for key, _ in events:
                _step(key, replies)
        took = (time.perf_counter_ns() - begun) / 1e9
    return Timed([], took, replies)


def _step(key: selectors.SelectorKey, replies: list[bytes]) -> None:
    """More of an answer on one connection; at its end the next request."""
    state, wire = key.data, key.fileobj
    assert isinstance(wire, socket.socket)  # noqa: S101
    chunk = wire.recv(_CHUNK)
    if not chunk:
        raise EOFError
    state[1] += chunk
    if complete(state[1]):
        replies.append(state[1])
        state[1] = b""
        if (following := next(state[0], None)) is not None:
            wire.sendall(following)


def complete(reply: bytes) -> bool:
    """Whether that is a whole HTTP response."""
    end = reply.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = reply[:end].lower()
    at = head.find(b"content-length:")
    if at >= 0:
        return len(reply) >= end + 4 + int(head[at + 15 :].split(b"\r\n", 1)[0])
    if b"transfer-encoding: chunked" in head:
        return reply.endswith(b"\r\n0\r\n\r\n")
    return head.startswith((b"http/1.1 202", b"http/1.1 204"))


def messages(replies: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    """What was said in them: lines, or bodies of HTTP as they are or as events."""
    for reply in replies:
        if not reply.startswith(b"HTTP/"):
            yield json.loads(reply)
            continue
        head, _, body = reply.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise ValueError(f"a wrong answer: {reply[:300]!r}")
        if b"chunked" in head.lower():
            body = _joined(body)
        if b"text/event-stream" in head:
            data = [
                line[6:]
                for line in body.splitlines()
                if line.startswith(b"data: ") and len(line) > len("data: ")
            ]
            body = data[-1]
        yield json.loads(body)


def check(replies: Sequence[bytes], count: int, expect: str) -> None:
    """A fast wrong answer is worth nothing."""
    found = list(messages(replies))
    if len(found) != count:
        raise ValueError(f"{count} requests, {len(found)} answers")
    for each in found:
        if "result" not in each or each["result"].get("isError") or expect not in json.dumps(each["result"]):
            raise ValueError(f"a wrong answer: {json.dumps(each)[:300]}")


def _joined(body: bytes) -> bytes:
    """Chunks of HTTP put together."""
    parts = []
    while True:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return b"".join(parts)
        parts.append(body[:length])
        body = body[length + 2 :]


def _request(number: int, asked: Asked, modern: bool) -> dict[str, Any]:
    method, params = asked
    if modern:
        params = {**params, "_meta": {**_ENVELOPE, **params.get("_meta", {})}}
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def _encoded(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def _connected(port: int) -> socket.socket:
    """A connection, as soon as somebody listens."""
    until = time.monotonic() + _WAIT
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            wire = socket.create_connection(("127.0.0.1", port), timeout=_WAIT)
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return wire
        if time.monotonic() > until:
            raise TimeoutError("no server came up")
        time.sleep(0.02)
