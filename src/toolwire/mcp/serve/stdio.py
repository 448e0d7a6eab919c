"""MCP over this process's own stdin and stdout.

Owns the two descriptors while it serves: output of tools and their children goes to stderr, and they cannot read
the client's input. A thread reads, so that a signal can end the server while there is no input. A client that does
not read blocks only its own messages, and the input of a client that floods is read no faster than it is answered;
requests beyond a limit are refused, so that a cancellation behind them still arrives. At the end of input, and at a
signal, running requests may finish within `drain` seconds, and no new ones start; then the rest is cancelled and
gets an error. If the client cannot be written to any more, the server ends at once. Must not know what a request is
about.
"""

import errno
import io
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

import anyio
import anyio.lowlevel
import mcp_types as types
import orjson
from anyio.abc import TaskGroup
from mcp.server import Server
from pydantic import ValidationError
from pydantic_core import from_json

from toolwire._protocol.json_codec import dumps
from toolwire._protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    SHUTTING_DOWN,
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
_JSON_LIMITS: Final = JsonLimits(max_values=1_000_000)  # higher, because the only client can only harm itself
_MAX_PENDING: Final = 10_000  # requests that may be pending at once; twice as many with pings
_MAX_PENDING_BYTES: Final = 64 << 20  # of their lines, if there is more than one
# Reading pauses while more than so much waits:
_MAX_QUEUED: Final = 1_000  # messages for the server
_MAX_POSTED: Final = 1 << 20  # bytes of input for the event loop
_MAX_UNREAD: Final = 16 << 20  # bytes of output for a client that does not read
_READ_TIMEOUT: Final = 60.0  # seconds in which it must read something while more than that waits
_PIPE_BUF: Final = 4096  # bytes that can be written without blocking if select reports a pipe as writable

_TOO_LONG: Final = orjson.dumps(
    make_error(None, RpcError(INVALID_REQUEST, f"Invalid Request: a line is longer than {_MAX_LINE} bytes"))
)
_TOO_MANY: Final = RpcError(
    INVALID_REQUEST,
    "Invalid Request: too many requests are pending. Wait for responses before you send more.",
)
_STOP_TIMEOUT: Final = 4.0  # seconds that requests have to stop after they are cancelled at shutdown
_FLUSH_TIMEOUT: Final = 2.0  # seconds to write their responses
_NOT_JSON: Final = RpcError(INTERNAL_ERROR, "the response cannot be written as JSON")


class Wire:
    """This process's stdin and stdout, reserved for the client."""

    def __init__(self) -> None:
        """Take both descriptors over. From then on 0 reads from the null device, and 1 writes to stderr."""
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
            sys.stdout.reconfigure(line_buffering=True)  # like stderr, so that a print is shown at once


def ensure_stderr() -> None:
    """Open the null device as stderr if that is closed. Otherwise the next file to be opened would become it."""
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
    """Run an `mcp` server over the wire until its input ends, or SIGINT or SIGTERM arrives.

    Then `closing` is called, to end requests that would never end by themselves. If requests still run after
    `drain` seconds, `stop(seconds)` is called to cancel them and wait until they have stopped.
    """
    connection = LineConnection(wire.input, wire.output)

    async def shut_down_on_signal() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            await _wait_or_signal(signals, connection.ended.wait)
            connection.refuse_work()
            closing()
            await _wait_or_signal(signals, partial(connection.drain, drain))  # a second signal ends the wait
            if connection.pending:
                logger.warning(
                    "%d calls did not finish within %g s and are cancelled", len(connection.pending), drain
                )
                await stop(_STOP_TIMEOUT)
                await connection.drain(_FLUSH_TIMEOUT)
            connection.close()
            await anyio.sleep_forever()  # keep catching signals until the server has ended

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shut_down_on_signal)
        await connection.run(server)
        tasks.cancel_scope.cancel()


async def _wait_or_signal(signals: Any, wait: Callable[[], Awaitable[Any]]) -> None:
    """Run `wait()` until it returns or a signal arrives."""
    async with anyio.create_task_group() as tasks:

        async def wait_for_signal() -> None:
            await anext(signals)
            tasks.cancel_scope.cancel()

        tasks.start_soon(wait_for_signal)
        await wait()
        tasks.cancel_scope.cancel()


class LineConnection:
    """A client at the other end of two descriptors, with one line for each message.

    `ended` is set when the client has disconnected, or cannot be written to any more. Then, or to shut the server
    down, call `refuse_work()`, `drain()` and `close()` in this order. The descriptors must be blocking, and may be
    closed once `ended` is set.
    """

    def __init__(self, source: int, target: int) -> None:
        self.ended = anyio.Event()
        self.pending = _PendingRequests()
        self._source = source
        self._refuses_work = False
        self._writer = _Writer(target, self.pending.respond, self._on_lost)
        self._intake = self._writer.intake = _Intake(self._writer)

    async def run(self, server: Server[Any]) -> None:
        """Run an `mcp` server for this client until `close()`."""
        threading.Thread(
            target=self._intake.read,
            args=(self._source, self._handle, loop_caller(), self.ended.set),
            name="toolwire stdin",
            daemon=True,
        ).start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._writer.flush)
            # In a task of its own, so that `Task.cancel()` of the caller also reaches it as a cancelled scope.
            tasks.start_soon(self._run, server, tasks)

    async def _run(self, server: Server[Any], tasks: TaskGroup) -> None:
        try:
            # Without options: the server makes them once its lifespan has started and its capabilities are known.
            await server.run(self._intake, self._writer, None)  # type: ignore[arg-type]
        except ExceptionGroup as errors:
            # When it is cancelled, one of `mcp`'s tasks may close a stream that another is still using.
            if errors.split(anyio.BrokenResourceError)[1] is None:
                await anyio.lowlevel.checkpoint_if_cancelled()
            raise
        tasks.cancel_scope.cancel()

    def refuse_work(self) -> None:
        """Refuse requests from now on."""
        self._refuses_work = True

    async def drain(self, seconds: float) -> None:
        """Wait until every request is answered, for at most so many seconds."""
        await self.pending.wait_until_empty(seconds)

    def close(self) -> None:
        """Accept no more messages, which ends the server."""
        self._intake.close()

    def _handle(self, line: "_Line") -> None:
        message = line.message
        if message is None:
            self._writer.put(line.refused)
            return
        # Lists are still answered, because `mcp`'s client may need one to validate the result that it waits for.
        is_work = isinstance(message, types.JSONRPCRequest) and not message.method.endswith("/list")
        refuses = self._refuses_work and is_work
        error = SHUTTING_DOWN if refuses else self.pending.accept(message, line.size)
        if error is None:
            self._intake.put(SessionMessage(message))
        else:
            self._writer.put(dumps(make_error(message.id, error)))

    def _on_lost(self) -> None:
        self.pending.discard_all()
        self.ended.set()


class _PendingRequests:
    """The ids of requests that are not answered yet, and the number of responses that are being written."""

    def __init__(self) -> None:
        self._sizes: dict[int | str, int] = {}  # bytes of each request's line
        self._bytes = 0
        self._writing = 0
        self._discarded = False
        self._changed = Signal()

    def __len__(self) -> int:
        return 0 if self._discarded else len(self._sizes) + self._writing

    def accept(self, message: Any, size: int) -> RpcError | None:
        """Track a message of the client. Returns the error if it is a request that must be refused, else None."""
        if isinstance(message, types.JSONRPCRequest) and not self._discarded:
            key = coerce_request_id(message.id)  # for `mcp`, "7" and 7 are the same id
            if key in self._sizes:
                return id_in_use(message.id)
            limit = 2 * _MAX_PENDING if message.method == "ping" else _MAX_PENDING
            if len(self) >= limit or (self._sizes and self._bytes + size > _MAX_PENDING_BYTES):
                return _TOO_MANY
            self._sizes[key] = size
            self._bytes += size
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            self._drop(as_request_id((message.params or {}).get("requestId")))
        return None

    @contextmanager
    def respond(self, request_id: int | str | None) -> Iterator[None]:
        """Count a response as being written inside the block.

        Its id is released at the start, since a client that has read the response may reuse the id at once.
        """
        self._drop(request_id)
        self._writing += 1
        try:
            yield
        finally:
            self._writing -= 1
            self._changed.notify()

    def _drop(self, request_id: int | str | None) -> None:
        if request_id is not None:
            self._bytes -= self._sizes.pop(coerce_request_id(request_id), 0)
            self._changed.notify()

    def discard_all(self) -> None:
        """Discard all requests, present and future: the client has disconnected."""
        self._discarded = True
        self._sizes.clear()
        self._changed.notify()

    async def wait_until_empty(self, seconds: float) -> None:
        """Wait until no request is pending, for at most so many seconds."""
        with anyio.move_on_after(seconds):
            await self._changed.wait_until(lambda: not len(self))


@dataclass(slots=True)
class _Line:
    """A line of the client: its message, or the error response if it is refused."""

    size: int = 0
    message: Any = None
    refused: bytes = b""


class _Intake(Inbox):
    """The stream that the server reads. A thread fills it, and pauses while too much data is waiting.

    This may be input that the event loop has not handled, messages that the server has not read, or responses that
    the client has not read. In the last case the server gets no more messages either.
    """

    def __init__(self, writer: "_Writer") -> None:
        super().__init__()
        self._writer = writer
        self._changed = threading.Condition()
        self._posted = 0  # bytes that were read and still count towards the limit
        self._handled = 0  # bytes among them that the event loop has handled

    def read(
        self,
        source: int,
        handle: Callable[["_Line"], None],
        post: Callable[[Callable[[], None]], None],
        on_end: Callable[[], None],
    ) -> None:
        """Read lines until the end of input, and pass them to `handle` on the event loop. Runs in a thread."""
        pending = bytearray()
        skipping = False
        while self._wait_for_room():
            try:
                chunk = os.read(source, _CHUNK)
            except OSError:
                chunk = b""
            if not chunk:
                break
            pending += chunk
            found = []
            if b"\n" in chunk:
                *lines, pending = pending.split(b"\n")
                for line in lines:
                    if skipping:
                        skipping = False
                    elif line.strip():
                        found.append(_parse_line(bytes(line)))
            if len(pending) > _MAX_LINE:
                pending.clear()
                if not skipping:
                    skipping = True
                    found.append(_Line(refused=_TOO_LONG))
            with self._changed:
                self._posted += len(chunk)
            post(partial(self._handle_all, handle, found, len(chunk)))
        post(on_end)

    def _wait_for_room(self) -> bool:
        """Wait, in the thread, until more may be read. Returns False if reading must end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._posted <= _MAX_POSTED)
        return not self._closed

    def _handle_all(self, handle: Callable[["_Line"], None], lines: list["_Line"], size: int) -> None:
        for line in lines:
            handle(line)
        self._handled += size
        self.make_room()

    def make_room(self) -> None:
        """Let the thread continue to read if little enough is waiting. To be called when that may have changed."""
        if self._handled and len(self._items) <= _MAX_QUEUED and not self._writer.is_full:
            with self._changed:
                self._posted -= self._handled
                self._changed.notify()
            self._handled = 0

    async def receive(self) -> Any:
        if len(self._items) > 1:  # let running requests respond first, so that their responses count below
            await anyio.lowlevel.checkpoint()
        if self._writer.is_full:  # each message may lead to another response
            await self._writer.wait_for_client()
        item = await super().receive()
        self.make_room()
        return item

    def close(self) -> None:
        """End the stream, and drop the messages that the server has not read: it must not start anything more."""
        self._items.clear()
        super().close()
        self._writer.stop_waiting()
        with self._changed:
            self._changed.notify()


def _parse_line(line: bytes) -> _Line:
    """Parse a line into its message, or into the error response if it is refused."""
    if (reason := describe_excess(line, _JSON_LIMITS)) is not None:
        error = RpcError(INVALID_REQUEST, f"Invalid Request: {reason}, which is the limit of this server")
        return _Line(refused=orjson.dumps(make_error(find_id(line), error)))
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError as error:
        return _Line(refused=orjson.dumps(_error_for(line, error.errors(include_url=False)[0]["msg"])))
    if isinstance(message, types.JSONRPCNotification) and "id" in from_json(line):
        # The id is invalid. `mcp` would take it for a notification, and the client would wait forever.
        return _Line(refused=orjson.dumps(_error_for(line, "the id must be a string or an integer")))
    return _Line(len(line), message)


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
        is_response = isinstance(message, types.JSONRPCResponse)
        if is_response and orjson.Fragment in map(type, message.result.values()):
            request_id = orjson.Fragment(dumps(message.id))  # orjson rejects integers of more than 64 bits
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
    data is waiting for it. `respond` is the context manager in which each response is written.
    """

    def __init__(
        self, target: int, respond: Callable[[Any], AbstractContextManager[None]], on_lost: Callable[[], None]
    ) -> None:
        self._target = target
        self.intake: _Intake  # is not read while too much waits to be written
        self._respond = respond
        self._on_lost = on_lost
        self._workers = Workers(1)
        self._lock = anyio.Lock()
        self._queue: deque[bytes] = deque()  # lines of the transport itself
        self._queued = Signal()
        self._closed = False
        self._waiting = 0  # bytes
        self._read_at = 0.0  # when the client last took some of them
        self._written = Signal()
        self._stopped_waiting = False

    @property
    def is_full(self) -> bool:
        """True if the client has to read before more of its requests are answered."""
        return self._waiting > _MAX_UNREAD and not self._closed and not self._stopped_waiting

    async def wait_for_client(self) -> None:
        """Wait until the client has read enough. A client that reads nothing for too long is dropped."""
        while self.is_full:
            with anyio.move_on_after(self._read_at + _READ_TIMEOUT - time.monotonic()):
                await self._written.wait_until(lambda: not self.is_full)
            if self.is_full:
                self._check_reader()

    def stop_waiting(self) -> None:
        """Stop waiting for the client: the connection ends."""
        self._stopped_waiting = True
        self._written.notify()

    def put(self, line: bytes) -> None:
        """Write a line of the transport itself: at once if possible, else as soon as the client reads."""
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
            self._queued.notify()

    async def flush(self) -> None:
        """Write the lines that `put` could not write at once, until it is cancelled or the client is lost."""
        while not self._closed:
            await self._queued.wait_until(lambda: self._queue)
            try:
                async with self._lock:
                    await self._write_queue()
            except OSError as error:
                self._on_write_error(error)

    async def send(self, item: SessionMessage) -> None:
        line = _encode(item.message)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
            with self._respond(item.message.id):
                await self._send_line(line)
        else:
            await self._send_line(line)

    def _add_waiting(self, size: int) -> bool:
        """Count bytes that wait to be written. Returns False if the client was dropped because it does not read."""
        if not self._waiting:
            self._read_at = time.monotonic()
        self._waiting += size
        return self._waiting <= _MAX_UNREAD or self._check_reader()

    def _check_reader(self) -> bool:
        """Drop the client if it has read nothing for too long. Returns False if it was dropped."""
        unread_for = time.monotonic() - self._read_at
        if unread_for < _READ_TIMEOUT:
            return True
        logger.error("the client has not read anything for %g s: ending the connection", unread_for)
        self._drop_client()
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
            self._count_written(line)

    async def _write_queue(self) -> None:
        while self._queue:
            await self._write(self._pop())

    def _pop(self) -> bytes:
        line = self._queue.popleft()
        self._count_written(line)
        return line

    def _count_written(self, line: bytes) -> None:
        self._waiting -= len(line)
        self._written.notify()
        self.intake.make_room()

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
        if error.errno != errno.EPIPE:  # otherwise the client has just disconnected
            logger.error("cannot write to the client: %s", error.strerror)
        self._drop_client()

    def _drop_client(self) -> None:
        self._closed = True
        while self._queue:
            self._pop()
        self._written.notify()
        self._on_lost()

    async def aclose(self) -> None:
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True


def _can_write_at_once(target: int, size: int) -> bool:
    """Return True if so many bytes can be written without blocking. On Windows, which cannot tell, always False."""
    return sys.platform != "win32" and size <= _PIPE_BUF and bool(select.select([], [target], [], 0)[1])
