"""A neutral MCP client over stdio and HTTP, written with the standard library alone.

What it sends is prepared before the timing starts, and the responses are checked afterwards, so that the time is
that of the server as far as possible.
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

Request = tuple[str, dict[str, Any]]
"""A method and its parameters."""


class TimedReplies:
    """The responses to some requests, how long each took, and how long all took."""

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
            self.send_each([("initialize", _HELLO)])
            os.write(self._out, _encode({"jsonrpc": "2.0", "method": "notifications/initialized"}) + b"\n")

    def encode_request(self, request: Request) -> bytes:
        """Encode a request with the next id, as it is sent."""
        self._ids += 1
        return _encode(_make_request(self._ids, request, self._modern)) + b"\n"

    def send_each(self, requests: Sequence[Request]) -> TimedReplies:
        """Send requests, each one after the response to the previous one, and time them."""
        ready = [self.encode_request(each) for each in requests]
        clock, write, read, outgoing, incoming = time.perf_counter_ns, os.write, os.read, self._out, self._in
        times, replies = [], []
        begun = clock()
        for line in ready:
            start = clock()
            write(outgoing, line)
            reply = read(incoming, _CHUNK)
            while not reply.endswith(b"\n"):
                more = read(incoming, _CHUNK)
                if not more:
                    raise EOFError
                reply += more
            times.append(clock() - start)
            replies.append(reply)
        return TimedReplies(times, (clock() - begun) / 1e9, replies)

    def send_at_once(self, requests: Sequence[Request], depth: int) -> TimedReplies:
        """Send requests with `depth` of them in flight, and time them."""
        ready = [self.encode_request(each) for each in requests]
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
        return TimedReplies([], (time.perf_counter_ns() - begun) / 1e9, b"".join(replies).splitlines())


class Http:
    """A client of a server over HTTP: one kept connection, and one session if the protocol version has sessions."""

    def __init__(self, port: int, version: str) -> None:
        self._port = port
        self._modern = version == MODERN
        self._version = version
        self._ids = 0
        self._session = ""
        self.connection = _connect(port)
        if not self._modern:
            hello = self.send_each([("initialize", _HELLO)]).replies[0]
            head = hello.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
            named = dict(line.lower().split(": ", 1) for line in head[1:])
            self._session = named["mcp-session-id"]
            self._exchange(self._encode_post({"jsonrpc": "2.0", "method": "notifications/initialized"}, None))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._session:
            head = (
                f"DELETE /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nMcp-Session-Id: {self._session}\r\n"
            )
            with contextlib.suppress(OSError, EOFError):  # the connection may be gone
                self._exchange(f"{head}Accept: application/json, text/event-stream\r\n\r\n".encode())
        self.connection.close()

    def encode_request(self, request: Request) -> bytes:
        """Encode a request with the next id, as it is sent."""
        self._ids += 1
        return self._encode_post(_make_request(self._ids, request, self._modern), request)

    def _encode_post(self, message: dict[str, Any], request: Request | None) -> bytes:
        body = _encode(message)
        head = [
            "POST /mcp HTTP/1.1",
            f"Host: 127.0.0.1:{self._port}",
            "User-Agent: bench/1",
            "Accept: application/json, text/event-stream",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        if self._modern and request is not None:
            head.append(f"Mcp-Method: {request[0]}")
            if "name" in request[1]:
                head.append(f"Mcp-Name: {request[1]['name']}")
        if message.get("method") != "initialize":
            head.append(f"Mcp-Protocol-Version: {self._version}")
        if self._session:
            head.append(f"Mcp-Session-Id: {self._session}")
        return "\r\n".join(head).encode() + b"\r\n\r\n" + body

    def _exchange(self, request: bytes) -> bytes:
        self.connection.sendall(request)
        reply = self.connection.recv(_CHUNK)
        while not is_complete(reply):
            more = self.connection.recv(_CHUNK)
            if not more:
                raise EOFError
            reply += more
        return reply

    def ensure_connected(self) -> None:
        """Call a tool, and reconnect if the server has closed the idle connection."""
        with contextlib.suppress(OSError, EOFError):
            self._exchange(
                self.encode_request(("tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}}))
            )
            return
        self.connection.close()
        self.connection = _connect(self._port)

    def send_each(self, requests: Sequence[Request]) -> TimedReplies:
        """Send requests, each one after the response to the previous one, and time them."""
        ready = [self.encode_request(each) for each in requests]
        if self._session or self._modern:
            self.ensure_connected()
        clock, exchange = time.perf_counter_ns, self._exchange
        times, replies = [], []
        begun = clock()
        for each in ready:
            start = clock()
            reply = exchange(each)
            times.append(clock() - start)
            replies.append(reply)
        return TimedReplies(times, (clock() - begun) / 1e9, replies)


def send_at_once(clients: Sequence[Http], requests: Sequence[Request]) -> TimedReplies:
    """Send requests over several connections at once, one after the other on each, and time them."""
    share = len(requests) // len(clients)
    ready = [[each.encode_request(request) for request in requests[:share]] for each in clients]
    replies: list[bytes] = []
    for each in clients:
        each.ensure_connected()
    with selectors.DefaultSelector() as poll:
        begun = time.perf_counter_ns()
        for client, own in zip(clients, ready, strict=True):
            queue = iter(own)
            client.connection.sendall(next(queue))
            poll.register(client.connection, selectors.EVENT_READ, [queue, b""])
        while len(replies) < share * len(clients):
            events = poll.select(_WAIT)
            if not events:
                raise TimeoutError(f"no response within {_WAIT:.0f} s")
            for key, _ in events:
                _receive(key, replies)
        took = (time.perf_counter_ns() - begun) / 1e9
    return TimedReplies([], took, replies)


def _receive(key: selectors.SelectorKey, replies: list[bytes]) -> None:
    """Read more of a response on one connection. When it is complete, send the next request."""
    state, connection = key.data, key.fileobj
    assert isinstance(connection, socket.socket)  # noqa: S101
    chunk = connection.recv(_CHUNK)
    if not chunk:
        raise EOFError
    state[1] += chunk
    if is_complete(state[1]):
        replies.append(state[1])
        state[1] = b""
        if (following := next(state[0], None)) is not None:
            connection.sendall(following)


def is_complete(reply: bytes) -> bool:
    """True if these bytes are a whole HTTP response."""
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


def decode_messages(replies: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the messages in responses: lines, or HTTP bodies with plain JSON or with events."""
    for reply in replies:
        if not reply.startswith(b"HTTP/"):
            yield json.loads(reply)
            continue
        head, _, body = reply.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise ValueError(f"wrong response: {reply[:300]!r}")
        if b"chunked" in head.lower():
            body = _join_chunks(body)
        if b"text/event-stream" in head:
            data = [
                line[6:]
                for line in body.splitlines()
                if line.startswith(b"data: ") and len(line) > len("data: ")
            ]
            body = data[-1]
        yield json.loads(body)


def check(replies: Sequence[bytes], count: int, expect: str) -> None:
    """Check that there are `count` results without an error, and that each contains the text `expect`."""
    found = list(decode_messages(replies))
    if len(found) != count:
        raise ValueError(f"{count} requests got {len(found)} responses")
    for each in found:
        if "result" not in each or each["result"].get("isError") or expect not in json.dumps(each["result"]):
            raise ValueError(f"wrong response: {json.dumps(each)[:300]}")


def _join_chunks(body: bytes) -> bytes:
    """Return the content of a chunked HTTP body."""
    parts = []
    while True:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return b"".join(parts)
        parts.append(body[:length])
        body = body[length + 2 :]


def _make_request(number: int, request: Request, modern: bool) -> dict[str, Any]:
    method, params = request
    if modern:
        params = {**params, "_meta": {**_ENVELOPE, **params.get("_meta", {})}}
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def _encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def _connect(port: int) -> socket.socket:
    """Connect to a port of this machine, as soon as a server listens on it."""
    until = time.monotonic() + _WAIT
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            connection = socket.create_connection(("127.0.0.1", port), timeout=_WAIT)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        if time.monotonic() > until:
            raise TimeoutError(f"no server listens on port {port} after {_WAIT:.0f} s")
        time.sleep(0.02)
