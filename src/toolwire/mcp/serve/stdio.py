"""MCP over this process's own stdin and stdout.

Owns the two descriptors while it serves: output of tools and their children goes to stderr, and they cannot read
from the wire. A thread reads, so that a signal can end the server while no input comes. A client that does not read
blocks only its own messages. At the end of input, and at a signal, running requests may finish within `drain`
seconds, and no new ones start; then the rest is cancelled and answered with an error. If the client cannot be
written to any more, the server ends at once. It must not know what a request is about.
"""

import errno
import io
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any, Final, Self

import anyio
import mcp_types as types
import orjson
from mcp.server import Server
from pydantic import ValidationError
from pydantic_core import from_json

from toolwire._protocol.json_codec import dumps
from toolwire._protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    RpcError,
    id_in_use,
    make_error,
    make_response,
)
from toolwire._support.log import logger_for
from toolwire._support.threads import Workers, loop_caller
from toolwire._support.waiting import Signal
from toolwire.errors import UsageError
from toolwire.mcp.compat import SessionMessage, as_request_id, coerce_request_id
from toolwire.mcp.serve.limits import JsonLimits, describe_excess, find_id
from toolwire.mcp.streams import Inbox

logger = logger_for("serving")

_CHUNK: Final = 1 << 16
_MAX_LINE: Final = 64 << 20  # a longer line is dropped with an error
_JSON_LIMITS: Final = JsonLimits(max_values=1_000_000)  # the one client can only harm itself
_MAX_UNREAD: Final = 16 << 20  # bytes that may wait for a client that does not read
_READ_TIMEOUT: Final = 60.0  # seconds that it may not read while more than that waits
_PIPE_BUF: Final = 4096  # bytes that a pipe which select calls writable takes without blocking (PIPE_BUF)

_TOO_LONG: Final = orjson.dumps(
    make_error(None, RpcError(INVALID_REQUEST, f"Invalid Request: a line is longer than {_MAX_LINE} bytes"))
)
_SHUTTING_DOWN: Final = RpcError(
    types.CONNECTION_CLOSED, "the server is shutting down and takes no new requests"
)
_STOP_TIMEOUT: Final = 4.0  # seconds that requests which are cancelled at the end have to stop
_FLUSH_TIMEOUT: Final = 2.0  # seconds for their responses to be written
_NOT_JSON: Final = RpcError(INTERNAL_ERROR, "the response cannot be written as JSON")


class Wire:
    """This process's stdin and stdout, kept for the client alone."""

    def __init__(self) -> None:
        """Take both. From here on descriptor 0 reads from the null device, and descriptor 1 is stderr."""
        ensure_stderr()
        for number, name, stream in ((0, "stdin", sys.__stdin__), (1, "stdout", sys.__stdout__)):
            if stream is None or not _is_open(number):
                raise UsageError(f"{name} is closed: a server over stdio needs it for its client")
        sys.stdout.flush()
        self.input = os.dup(0)
        self.output = os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # as stderr is, so that a print shows at once


def ensure_stderr() -> None:
    """Open the null device as stderr if that is closed: else the next file that is opened would become stderr."""
    if sys.__stderr__ is not None or _is_open(2):
        return
    null = os.open(os.devnull, os.O_WRONLY)
    if null != 2:  # noqa: PLR2004 - stderr
        os.dup2(null, 2)
        os.close(null)
    sys.stderr = os.fdopen(2, "w", closefd=False)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


async def _stop_nothing(seconds: float) -> None:
    del seconds


async def serve_wire(
    wire: Wire,
    server: Server[Any],
    drain: float = 5.0,
    *,
    closing: Callable[[], None] = lambda: None,
    stop: Callable[[float], Awaitable[Any]] = _stop_nothing,
) -> None:
    """Run an `mcp` server over the wire until its input ends or SIGINT or SIGTERM comes.

    Then `closing` is called, to end requests that would never end by themselves. `stop(seconds)` is called if
    requests still run after `drain` seconds: it cancels them, and waits until they have stopped.
    """
    inbox, pending = Inbox(), _PendingRequests()
    ended, ending = anyio.Event(), anyio.Event()

    def on_lost() -> None:
        pending.discard_all()
        ended.set()

    writer = _Writer(wire.output, pending.respond, on_lost)

    def take(message: Any) -> None:
        # Lists are still answered: `mcp`'s client needs one to validate the result that it is waiting for.
        is_work = isinstance(message, types.JSONRPCRequest) and not message.method.endswith("/list")
        if ending.is_set() and is_work:
            writer.put(dumps(make_error(message.id, _SHUTTING_DOWN)))
        elif pending.accept(message):
            inbox.put(SessionMessage(message))
        else:
            writer.put(dumps(make_error(message.id, id_in_use(message.id))))

    threading.Thread(
        target=_read,
        args=(wire.input, take, writer, loop_caller(), ended),
        name="toolwire stdin",
        daemon=True,
    ).start()

    async def shut_down_on_signal() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            await _wait_or_signal(signals, ended.wait)
            ending.set()
            closing()
            drained = partial(pending.wait_until_empty, drain)
            await _wait_or_signal(signals, drained)  # until a second signal
            if pending:
                logger.warning("%d calls did not finish within %g s and are cancelled", len(pending), drain)
                await stop(_STOP_TIMEOUT)
                await pending.wait_until_empty(_FLUSH_TIMEOUT)
            inbox.close()
            await anyio.sleep_forever()  # with signals still caught, until the server has ended

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shut_down_on_signal)
        # Without options: the server makes them once its lifespan has started and its capabilities are known.
        await server.run(inbox, writer, None)  # type: ignore[arg-type]
        tasks.cancel_scope.cancel()


async def _wait_or_signal(signals: Any, wait: Callable[[], Awaitable[Any]]) -> None:
    """Run `wait()` until it returns or a signal comes."""
    async with anyio.create_task_group() as tasks:

        async def wait_for_signal() -> None:
            await anext(signals)
            tasks.cancel_scope.cancel()

        tasks.start_soon(wait_for_signal)
        await wait()
        tasks.cancel_scope.cancel()


class _PendingRequests:
    """The ids of requests that are not answered yet, and the number of responses that are being written."""

    def __init__(self) -> None:
        self._ids: set[int | str] = set()
        self._writing = 0
        self._discarded = False
        self._changed = Signal()

    def __len__(self) -> int:
        return 0 if self._discarded else len(self._ids) + self._writing

    def accept(self, message: Any) -> bool:
        """Take note of a message of the client. False for a request whose id belongs to a pending one."""
        if isinstance(message, types.JSONRPCRequest) and not self._discarded:
            key = coerce_request_id(message.id)  # `mcp` takes "7" and 7 for one id
            if key in self._ids:
                return False
            self._ids.add(key)
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            self._drop(as_request_id((message.params or {}).get("requestId")))
        return True

    @contextmanager
    def respond(self, request_id: int | str | None) -> Iterator[None]:
        """Write a response inside the block. Its id is free at once: a client that has read it may reuse the id."""
        self._drop(request_id)
        self._writing += 1
        try:
            yield
        finally:
            self._writing -= 1
            self._changed.notify()

    def _drop(self, request_id: int | str | None) -> None:
        if request_id is not None:
            self._ids.discard(coerce_request_id(request_id))
            self._changed.notify()

    def discard_all(self) -> None:
        """Discard all requests, those that are still to come included: the client is gone."""
        self._discarded = True
        self._ids.clear()
        self._changed.notify()

    async def wait_until_empty(self, seconds: float) -> None:
        """Wait until no request is pending, for at most so many seconds."""
        with anyio.move_on_after(seconds):
            await self._changed.wait_until(lambda: not len(self))


def _read(
    source: int,
    take: Callable[[Any], None],
    writer: "_Writer",
    post: Callable[[Callable[[], None]], None],
    ended: anyio.Event,
) -> None:
    """Read lines until the end of input, and post what to do for each to the event loop. Runs in a thread."""
    pending = bytearray()
    skipping = False
    while True:
        try:
            chunk = os.read(source, _CHUNK)
        except OSError:
            chunk = b""
        if not chunk:
            break
        pending += chunk
        if b"\n" in chunk:
            *lines, pending = pending.split(b"\n")
            for line in lines:
                if skipping:
                    skipping = False
                elif line.strip():
                    post(_parse_line(bytes(line), take, writer))
        if len(pending) > _MAX_LINE:
            pending.clear()
            if not skipping:
                skipping = True
                post(partial(writer.put, _TOO_LONG))
    post(ended.set)


def _parse_line(line: bytes, take: Callable[[Any], None], writer: "_Writer") -> Callable[[], None]:
    """Return what to do for a line on the event loop: take its message, or answer with an error."""
    if (reason := describe_excess(line, _JSON_LIMITS)) is not None:
        error = RpcError(INVALID_REQUEST, f"Invalid Request: {reason}, which is the limit of this server")
        refused = orjson.dumps(make_error(find_id(line), error))
        return lambda: writer.put(refused)
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError as error:
        refused = orjson.dumps(_error_for(line, error.errors(include_url=False)[0]["msg"]))
        return lambda: writer.put(refused)
    if isinstance(message, types.JSONRPCNotification) and "id" in from_json(line):
        # The id is invalid. `mcp` would take it for a notification, and the client would wait for ever.
        refused = orjson.dumps(_error_for(line, "the id must be a string or an integer"))
        return lambda: writer.put(refused)
    return lambda: take(message)


def _error_for(line: bytes, reason: str) -> dict[str, Any]:
    """Return the error response to a line that is not a valid message."""
    try:
        message = orjson.loads(line)
    except orjson.JSONDecodeError as broken:
        return make_error(None, RpcError(PARSE_ERROR, "Parse error", {"details": str(broken)}))
    given = message.get("id") if isinstance(message, dict) else None
    usable = isinstance(given, int | str) and not isinstance(given, bool)
    return make_error(given if usable else None, RpcError(INVALID_REQUEST, f"Invalid Request: {reason}"))


def _encode(message: Any) -> bytes:
    """Encode a message as a line. A response that is not JSON becomes an error, a notification is dropped."""
    try:
        if isinstance(message, types.JSONRPCResponse) and orjson.Fragment in map(
            type, message.result.values()
        ):
            request_id = orjson.Fragment(dumps(message.id))  # orjson has no integers of more than 64 bits
            response = {**make_response("", message.result), "id": request_id}
            return orjson.dumps(response, option=orjson.OPT_APPEND_NEWLINE)
        text: str = message.model_dump_json(by_alias=True, exclude_unset=True)
        return text.encode() + b"\n"
    except (ValueError, RecursionError) as error:
        if isinstance(message, types.JSONRPCRequest):
            raise  # to the tool that sends it
        logger.warning("a message to the client cannot be written as JSON: %s", error)
        if isinstance(message, types.JSONRPCNotification):
            return b""
        return dumps(make_error(message.id, _NOT_JSON)) + b"\n"


class _Writer:
    """The stream that the server writes to: one line for each message, in order.

    `on_lost` is called when the client cannot be written to any more, or has not read for too long while too much
    waits for it. `respond` is held around the writing of each response.
    """

    def __init__(
        self,
        target: int,
        respond: Callable[[Any], AbstractContextManager[None]],
        on_lost: Callable[[], None],
    ) -> None:
        self._target = target
        self._respond = respond
        self._on_lost = on_lost
        self._workers = Workers(1)
        self._lock = anyio.Lock()
        self._queue: list[bytes] = []  # lines of the transport itself
        self._closed = False
        self._waiting = 0  # bytes
        self._read_at = 0.0  # when the client last took some of them

    def put(self, line: bytes) -> None:
        """Write a line of the transport itself: at once if possible, else before the next message."""
        if self._closed or not self._add_waiting(len(line) + 1):
            return
        self._queue.append(line + b"\n")
        with suppress(anyio.WouldBlock):
            self._lock.acquire_nowait()
            try:
                while self._queue and _can_write_at_once(self._target, len(self._queue[0])):
                    self._write_all(self._pop())
            except OSError as error:
                self._on_write_error(error)
            finally:
                self._lock.release()

    async def send(self, item: SessionMessage) -> None:
        line = _encode(item.message)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
            with self._respond(item.message.id):
                await self._send_line(line)
        else:
            await self._send_line(line)

    def _add_waiting(self, size: int) -> bool:
        """Count bytes that wait to be written. False if the client does not read: then it is given up."""
        now = time.monotonic()
        if not self._waiting:
            self._read_at = now
        self._waiting += size
        if self._waiting <= _MAX_UNREAD or now - self._read_at < _READ_TIMEOUT:
            return True
        logger.error("the client has not read anything for %g s: ending the connection", now - self._read_at)
        self._give_up()
        return False

    async def _send_line(self, line: bytes) -> None:
        if self._closed or not self._add_waiting(len(line)):
            raise anyio.ClosedResourceError
        try:
            async with self._lock:
                if self._closed:
                    raise anyio.ClosedResourceError
                await self._write_queue()
                await self._write(line)
                await self._write_queue()  # lines that were added meanwhile
        except OSError as error:
            self._on_write_error(error)
            raise anyio.BrokenResourceError from error
        finally:
            self._waiting -= len(line)

    async def _write_queue(self) -> None:
        while self._queue:
            await self._write(self._pop())

    def _pop(self) -> bytes:
        line = self._queue.pop(0)
        self._waiting -= len(line)
        return line

    async def _write(self, line: bytes) -> None:
        if _can_write_at_once(self._target, len(line)):
            self._write_all(line)
        else:
            await self._workers.run(partial(self._write_all, line))

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._target, view) :]
            self._read_at = time.monotonic()

    def _on_write_error(self, error: OSError) -> None:
        if error.errno != errno.EPIPE:  # otherwise the client has just left
            logger.error("cannot write to the client: %s", error.strerror)
        self._give_up()

    def _give_up(self) -> None:
        self._closed = True
        while self._queue:
            self._pop()
        self._on_lost()

    async def aclose(self) -> None:
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True


def _can_write_at_once(target: int, size: int) -> bool:
    """True if so many bytes can be written without waiting. Always False on Windows, which cannot tell."""
    return sys.platform != "win32" and size <= _PIPE_BUF and bool(select.select([], [target], [], 0)[1])
