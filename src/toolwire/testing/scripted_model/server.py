"""The HTTP side of the scripted model: a Messages API on a loopback port, in threads of its own.

Owns sockets, threads and the order of bytes. The caller passes a function that answers a request. Must not know of
scripts.
"""

import json
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

from toolwire.testing.request import Request
from toolwire.testing.script import Answer, Call, Drop, Failure, Hang, Text, Turn
from toolwire.testing.scripted_model import sse

_CREDENTIALS = {"authorization", "cookie", "proxy-authorization", "x-api-key"}
_CLOSE_WITHIN = 2.0  # seconds; a handler that is still in a user's function then is abandoned
_POLL = 0.02


class ModelServer(ThreadingHTTPServer):
    """Serves from `start` to `stop`. Calls `answer` with each messages request, `record` with all others."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self, answer: Callable[[Request], Answer], record: Callable[[Request, str | None], None]
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.record = record
        self.closed = threading.Event()
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()
        self._messages = count(1)
        self._calls = count(1)
        self._thread = threading.Thread(
            target=self.serve_forever, args=(_POLL,), name="scripted-model", daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Drop all connections and stop. Returns within a few seconds."""
        self.closed.set()
        self.shutdown()
        self.server_close()
        with self._changed:
            for connection in self._open:
                _shut_down(connection)
            self._changed.wait_for(lambda: not self._open, _CLOSE_WITHIN)
        self._thread.join(_CLOSE_WITHIN)

    def add_connection(self, connection: socket.socket) -> None:
        with self._changed:
            self._open.add(connection)

    def remove_connection(self, connection: socket.socket) -> None:
        with self._changed:
            self._open.discard(connection)
            self._changed.notify_all()

    def new_message_id(self) -> str:
        # The CLI merges messages that share an id, so each has its own.
        return f"msg_{next(self._messages):04d}"

    def new_call_ids(self, turn: Turn) -> list[str]:
        return [
            block.id or f"toolu_{next(self._calls):04d}" for block in turn.blocks if isinstance(block, Call)
        ]

    def server_bind(self) -> None:
        # HTTPServer's own looks up this machine's name; nothing here may leave loopback.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Expected: a client that disconnected, and our own stop. Anything else is a bug.
        if not self.closed.is_set() and not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.server.add_connection(self.connection)

    def finish(self) -> None:
        try:
            with suppress(ConnectionError):
                super().finish()
        finally:
            self.server.remove_connection(self.connection)

    def handle(self) -> None:
        # Accepted while stopping, after stop() has dropped the open connections.
        if not self.server.closed.is_set():
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests are recorded."""

    def _reject_method(self) -> None:
        self._read_body()  # or it would be parsed as the next request
        self.server.record(self._to_request({}), None)
        self._send_not_found()

    do_GET = do_HEAD = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _reject_method  # noqa: N815  names set by http.server

    def do_POST(self) -> None:
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            self.close_connection = True
            self._send(
                HTTPStatus.LENGTH_REQUIRED, sse.error("invalid_request_error", "Content-Length is required")
            )
            return
        try:
            body = json.loads(self._read_body() or b"null")
        except ValueError:
            body = None
        request = self._to_request(body if isinstance(body, dict) else {})
        if request.path == "/v1/messages":
            if isinstance(body, dict):
                self._play(self.server.answer(request), request)
            else:
                self.server.record(request, "the body is not a JSON object")
                self._send(400, sse.error("invalid_request_error", "the body is not a JSON object"))
        elif request.path == "/v1/messages/count_tokens":
            self.server.record(request, None)
            self._send(200, {"input_tokens": max(1, len(json.dumps(body)) // 4)})
        else:
            self.server.record(request, None)
            self._send_not_found()

    def _to_request(self, body: dict[str, Any]) -> Request:
        headers = {name.lower(): value for name, value in self.headers.items()}
        headers.update(dict.fromkeys(_CREDENTIALS & headers.keys(), "[redacted]"))
        return Request(self.command, self.path.partition("?")[0], headers, body)

    def _play(self, answer: Answer, request: Request) -> None:
        match answer:
            case Failure():
                self._send_failure(answer)
            case Hang():
                self._disconnected_within(None)
                self.close_connection = True
            case Drop(text):
                self._send_part(Turn((Text(text),)), request)
            case Turn():
                self._send_turn(answer, request)
            case block:
                self._send_turn(Turn((block,)), request)

    def _send_failure(self, failure: Failure) -> None:
        headers = {"x-should-retry": "true" if failure.retry else "false"}
        if failure.retry_after is not None:
            headers["retry-after"] = f"{failure.retry_after:g}"
        self._send(failure.status, sse.error(failure.type, failure.message), headers)

    def _send_turn(self, turn: Turn, request: Request) -> None:
        if turn.delay and self._disconnected_within(turn.delay):
            return
        ids: dict[str, Any] = {"id": self.server.new_message_id(), "call_ids": self.server.new_call_ids(turn)}
        if not request.body.get("stream"):
            self._send(200, sse.message(turn, model=request.model, **ids))
            return
        self._send_stream_head()
        if self._send_events(sse.events(turn, model=request.model, **ids), turn.chunk_delay):
            self.wfile.write(b"0\r\n\r\n")

    def _send_part(self, turn: Turn, request: Request) -> None:
        message_id = self.server.new_message_id()
        if request.body.get("stream"):
            self._send_stream_head()
            events = sse.events(turn, id=message_id, model=request.model, call_ids=[])
            self._send_events(event for event in events if event["type"] in _BEFORE_DROP)
        else:
            whole = sse.to_json(sse.message(turn, id=message_id, model=request.model, call_ids=[]))
            self._send_head(200, {"content-type": "application/json", "content-length": str(len(whole))})
            self.wfile.write(whole[: len(whole) // 2])
        self.close_connection = True
        _shut_down(self.connection)

    def _send_stream_head(self) -> None:
        self._send_head(
            200, {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"}
        )

    def _send_events(self, events: Iterable[sse.Event], pause: float = 0.0) -> bool:
        for event in events:
            if pause and event["type"] == "content_block_delta" and self._disconnected_within(pause):
                return False
            data = sse.encode(event)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def _disconnected_within(self, seconds: float | None) -> bool:
        """Wait; returns True at once when the client disconnects or the server is stopped."""
        # stop() shuts the connection down, so one blocking peek sees both.
        self.connection.settimeout(seconds)
        try:
            gone = not self.connection.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return False
        except ConnectionError:
            gone = True
        finally:
            with suppress(OSError):
                self.connection.settimeout(None)
        if not gone:  # the next request is already there, so the socket no longer shows a disconnect
            gone = self.server.closed.wait(seconds)
        self.close_connection |= gone
        return gone

    def _send_not_found(self) -> None:
        self._send(
            HTTPStatus.NOT_FOUND,
            sse.error("not_found_error", f"the scripted model has no {self.command} {self.path}"),
        )

    def _read_body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def _send(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        data = sse.to_json(body)
        self._send_head(
            status, {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})}
        )
        if self.command != "HEAD":
            self.wfile.write(data)

    def _send_head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


_BEFORE_DROP = {"message_start", "content_block_start", "content_block_delta"}


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
