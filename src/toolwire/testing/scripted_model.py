"""`ScriptedModel`: a Messages API on loopback that plays a script, to drive the real CLI in tests.

Owns the progress through the script (which request takes which entry, the records, unexpected requests), and the
HTTP server: sockets, threads and the order of bytes. The server calls a function that answers a request, and must
not know about scripts. Nothing here knows about the CLI's flags and environment (see `environment`).
"""

import json
import socket
import socketserver
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from reprlib import Repr
from typing import Any, Self

from toolwire.testing.script import (
    Answer,
    Call,
    Drop,
    Event,
    Failure,
    Hang,
    Request,
    Rule,
    Step,
    StepError,
    Text,
    Turn,
    build_error,
    build_events,
    build_message,
    encode_event,
    evaluate,
    fail,
    load_script,
    say,
    to_json,
)

_short = Repr()
_short.maxstring = 120
_short.maxlist = 3


@dataclass(frozen=True)
class Unexpected:
    """A request for which the script had no entry, or for which the entry failed."""

    reason: str
    request: Request
    error: Exception | None = None

    def __str__(self) -> str:
        return f"{self.reason}: {_describe(self.request)}"


class ScriptedModel:
    """Answers each request of the conversation with the next entry of `script`.

    - `subagents` is a separate script for the requests of subagents, which arrive while the main
      conversation continues. Without it, subagents take entries of `script`.
    - `rules` are called, in order, with requests for which the script has no entry: the CLI's own requests
      (`request.side`), which otherwise get a short text, and requests after the end of the script.
    - A request after the end that no rule answers is rejected with HTTP 400 and recorded in `unexpected`, and
      `assert_finished` fails.

    The CLI repeats a rejected request in a simpler form (without some beta header, or without streaming). A
    repeated request gets the same error and takes no entry.
    """

    def __init__(
        self,
        script: Iterable[Step] = (),
        *,
        subagents: Iterable[Step] | None = None,
        rules: Iterable[Rule] = (),
    ) -> None:
        self._script: deque[Step] = load_script(script, Answer)
        self._subagents = None if subagents is None else load_script(subagents, Answer)
        self._rules = tuple(rules)
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._others: list[Request] = []
        self._unexpected: list[Unexpected] = []
        self._rejected: dict[tuple[str | None, ...], tuple[Any, Failure]] = {}
        self._server: ModelServer | None = None
        self._closed = False

    def start(self) -> Self:
        """Start listening. A `with` block calls this."""
        with self._lock:
            if self._closed:
                raise RuntimeError(
                    "this scripted model was closed and cannot be started again; make a new one"
                )
            if self._server is None:
                self._server = ModelServer(self._answer, self._record)
                self._server.start()
        return self

    def close(self) -> None:
        """Drop all open connections and stop listening. May be called more than once; waits for no response."""
        with self._lock:
            server = None if self._closed else self._server
            self._closed = True
        if server is not None:
            server.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The base URL, for `ANTHROPIC_BASE_URL`."""
        if self._server is None:
            raise RuntimeError("the scripted model is not started; use it in a `with` block or call start()")
        return self._server.url

    @property
    def requests(self) -> list[Request]:
        """The requests of the conversation so far, including subagents, in order of arrival."""
        with self._lock:
            return list(self._requests)

    @property
    def others(self) -> list[Request]:
        """All other requests: the CLI's own, repeated rejected ones, token counts, probes."""
        with self._lock:
            return list(self._others)

    @property
    def unexpected(self) -> list[Unexpected]:
        """The requests that the script could not answer."""
        with self._lock:
            return list(self._unexpected)

    @property
    def remaining(self) -> list[Step]:
        """The entries of the scripts that have not been played yet."""
        with self._lock:
            return [*self._script, *(self._subagents or ())]

    def assert_finished(self) -> None:
        """Raise `AssertionError` unless every entry was played and there was no unexpected request."""
        remaining, unexpected = self.remaining, self.unexpected
        lines = [f"not played: {step!r}" for step in remaining]
        lines += [f"request not expected: {each}" for each in unexpected]
        if lines:
            cause = next((each.error for each in unexpected if each.error), None)
            raise AssertionError("\n".join(["the script was not followed", *lines])) from cause

    def _record(self, request: Request, problem: str | None) -> None:
        with self._lock:
            self._others.append(request)
            if problem is not None:
                self._unexpected.append(Unexpected(problem, request))

    def _answer(self, request: Request) -> Answer:
        """Return the answer to one request for `/v1/messages`. Runs in the thread of its connection."""
        try:
            answer = self._find_answer(request)
        except StepError as error:
            cause = error.__cause__ if isinstance(error.__cause__, Exception) else None
            answer = self._reject(str(error), request, cause)
        if isinstance(answer, Failure) and not answer.retry and request.session_id and not request.side:
            with self._lock:
                self._rejected[_sender(request)] = (request.body.get("messages"), answer)
        return answer

    def _find_answer(self, request: Request) -> Answer:
        if request.side:
            self._record(request, None)
            return self._apply_rules(request) or say("ok")
        with self._lock:
            rejection = self._find_rejection(request)
            if rejection is not None:
                self._others.append(request)
                return rejection
            self._requests.append(request)
            script = self._script if request.agent_id is None or self._subagents is None else self._subagents
            step = script.popleft() if script else None
        if step is not None:
            answer: Answer = evaluate(step, request, Answer)
            return answer
        return self._apply_rules(request) or self._reject("the script has run out", request)

    def _find_rejection(self, request: Request) -> Answer | None:
        """Return the error that the same messages of the same session have already received, if any."""
        if request.session_id is None:
            return None
        messages, rejection = self._rejected.get(_sender(request), (None, None))
        return rejection if rejection is not None and messages == request.body.get("messages") else None

    def _apply_rules(self, request: Request) -> Answer | None:
        answers = (evaluate(rule, request, Answer | None) for rule in self._rules)
        return next((answer for answer in answers if answer is not None), None)

    def _reject(self, reason: str, request: Request, error: Exception | None = None) -> Answer:
        unexpected = Unexpected(reason, request, error)
        with self._lock:
            self._unexpected.append(unexpected)
        return fail(400, message=f"scripted model: {unexpected}")


def _sender(request: Request) -> tuple[str | None, ...]:
    return request.session_id, request.agent_id, request.model


def _describe(request: Request) -> str:
    who = "" if request.agent_id is None else f" by subagent {request.agent_id}"
    results = [tuple(result) for result in request.tool_results]
    said = f"tool results {_short.repr(results)}" if results else f"prompt {_short.repr(request.prompt)}"
    return f"{request.method} {request.path}{who} with {said}"


_CREDENTIALS = {"authorization", "cookie", "proxy-authorization", "x-api-key"}
_CLOSE_WITHIN = 2.0  # seconds; a handler that is still running a user's function after that is abandoned
_POLL = 0.02


class ModelServer(ThreadingHTTPServer):
    """Serves from `start` to `stop`. Calls `answer` with requests for `/v1/messages`, `record` with others."""

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
        # The CLI merges messages with the same id, so each message has its own.
        return f"msg_{next(self._messages):04d}"

    def new_call_ids(self, turn: Turn) -> list[str]:
        return [
            block.id or f"toolu_{next(self._calls):04d}" for block in turn.blocks if isinstance(block, Call)
        ]

    def server_bind(self) -> None:
        # HTTPServer.server_bind looks up this machine's host name, but nothing here may leave loopback.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A disconnected client and `stop` are expected causes. Anything else is a bug.
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
        # A connection may be accepted during stop(), after it has dropped the open ones.
        if not self.server.closed.is_set():
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests are recorded."""

    def _reject_method(self) -> None:
        self._read_body()  # otherwise it would be parsed as the next request
        self.server.record(self._to_request({}), None)
        self._send_not_found()

    do_GET = do_HEAD = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _reject_method  # noqa: N815  names set by http.server

    def do_POST(self) -> None:
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            self.close_connection = True
            self._send(
                HTTPStatus.LENGTH_REQUIRED, build_error("invalid_request_error", "Content-Length is required")
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
                self._send(400, build_error("invalid_request_error", "the body is not a JSON object"))
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
        self._send(failure.status, build_error(failure.type, failure.message), headers)

    def _send_turn(self, turn: Turn, request: Request) -> None:
        if turn.delay and self._disconnected_within(turn.delay):
            return
        ids: dict[str, Any] = {"id": self.server.new_message_id(), "call_ids": self.server.new_call_ids(turn)}
        if not request.body.get("stream"):
            self._send(200, build_message(turn, model=request.model, **ids))
            return
        self._send_stream_head()
        if self._send_events(build_events(turn, model=request.model, **ids), turn.chunk_delay):
            self.wfile.write(b"0\r\n\r\n")

    def _send_part(self, turn: Turn, request: Request) -> None:
        message_id = self.server.new_message_id()
        if request.body.get("stream"):
            self._send_stream_head()
            events = build_events(turn, id=message_id, model=request.model, call_ids=[])
            self._send_events(event for event in events if event["type"] in _BEFORE_DROP)
        else:
            whole = to_json(build_message(turn, id=message_id, model=request.model, call_ids=[]))
            self._send_head(200, {"content-type": "application/json", "content-length": str(len(whole))})
            self.wfile.write(whole[: len(whole) // 2])
        self.close_connection = True
        _shut_down(self.connection)

    def _send_stream_head(self) -> None:
        self._send_head(
            200, {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"}
        )

    def _send_events(self, events: Iterable[Event], pause: float = 0.0) -> bool:
        for event in events:
            if pause and event["type"] == "content_block_delta" and self._disconnected_within(pause):
                return False
            data = encode_event(event)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def _disconnected_within(self, seconds: float | None) -> bool:
        """Wait. Returns True as soon as the client disconnects or the server is stopped, False after the time."""
        # stop() shuts down the connection, so one blocking peek detects both.
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
        if not gone:  # the next request has already arrived, so the peek cannot detect a disconnect
            gone = self.server.closed.wait(seconds)
        self.close_connection |= gone
        return gone

    def _send_not_found(self) -> None:
        self._send(
            HTTPStatus.NOT_FOUND,
            build_error("not_found_error", f"the scripted model has no {self.command} {self.path}"),
        )

    def _read_body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def _send(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        data = to_json(body)
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
