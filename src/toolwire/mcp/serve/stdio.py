"""MCP over this process's own stdin and stdout.

Owns the two descriptors while it serves: what tools and their children print goes to stderr, and they read nothing
from the wire. A thread reads, so that a signal can end the server while nothing comes in; a client that stops
reading holds up nobody but itself. At the end of input, as at a signal, what runs may finish within `drain`
seconds, and nothing new is begun; then the rest is cancelled and answered with an error. When nobody reads any
more, it ends at once.
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
_LINE: Final = 64 << 20  # a longer line is dropped with an error
_JSON: Final = JsonLimits(max_values=1_000_000)  # the one client hurts nobody but itself
_UNREAD: Final = 16 << 20  # bytes that may wait for a client that reads nothing
_PATIENCE: Final = 60.0  # seconds that it may read nothing while so much waits
_SURE: Final = 4096  # a pipe that select calls writable takes this much at once (PIPE_BUF)


_TOO_LONG: Final = orjson.dumps(
    make_error(None, RpcError(INVALID_REQUEST, f"Invalid Request: a line is longer than {_LINE} bytes"))
)
_ENDING: Final = RpcError(types.CONNECTION_CLOSED, "the server is shutting down and takes no new requests")
_STOP: Final = 4.0  # seconds in which requests that are cancelled at the end have to stop
_FLUSH: Final = 2.0  # seconds for their answers to get out
_UNWRITABLE: Final = RpcError(INTERNAL_ERROR, "the answer cannot be written as JSON")


class Wire:
    """The client's end of this process: its stdin and stdout, out of the reach of tools."""

    def __init__(self) -> None:
        """Claim both. From here on descriptor 0 reads nothing, and descriptor 1 is stderr."""
        have_stderr()
        for number, name, stream in ((0, "stdin", sys.__stdin__), (1, "stdout", sys.__stdout__)):
            if stream is None or not _is_open(number):
                raise UsageError(f"{name} is closed, and a server over stdio talks to its client there")
        sys.stdout.flush()
        self.input = os.dup(0)
        self.output = os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # as stderr is: a print shows when it is made


def have_stderr() -> None:
    """Where the launcher has closed stderr, open it to nowhere, or the next file opened would be it."""
    if sys.__stderr__ is not None or _is_open(2):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != 2:  # noqa: PLR2004 - stderr
        os.dup2(nowhere, 2)
        os.close(nowhere)
    sys.stderr = os.fdopen(2, "w", closefd=False)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


async def _nothing(seconds: float) -> None:
    del seconds


async def serve_wire(
    wire: Wire,
    core: Any,
    drain: float = 5.0,
    *,
    closing: Callable[[], None] = lambda: None,
    stop: Callable[[float], Awaitable[Any]] = _nothing,
) -> None:
    """Run an `mcp` server over the wire until its input ends or SIGINT or SIGTERM comes.

    `closing` is called then: it ends what would never end by itself. `stop(seconds)` is called if requests still
    run after `drain` seconds: it cancels them, and waits until they have stopped.
    """
    if (ready_made := getattr(core, "ready_made", None)) is not None:
        core.middleware.append(ready_made)
    inbox, unanswered = Inbox(), _Unanswered()
    ended, ending = anyio.Event(), anyio.Event()

    def lost() -> None:
        unanswered.forget()
        ended.set()

    writer = _Writer(wire.output, unanswered.answering, lost)

    def take(message: Any) -> None:
        # Lists are no work, and `mcp`'s client wants one before it believes the result that it was waiting for.
        work = isinstance(message, types.JSONRPCRequest) and not message.method.endswith("/list")
        if ending.is_set() and work:
            writer.put(dumps(make_error(message.id, _ENDING)))
        elif unanswered.heard(message):
            inbox.put(SessionMessage(message))
        else:
            writer.put(dumps(make_error(message.id, id_in_use(message.id))))

    threading.Thread(
        target=_read,
        args=(wire.input, take, writer, loop_caller(), ended),
        name="toolwire stdin",
        daemon=True,
    ).start()

    async def until_told() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            await _or_signal(signals, ended.wait)
            ending.set()
            closing()
            await _or_signal(signals, partial(unanswered.none, drain))  # a second signal ends the wait
            if unanswered:
                logger.warning(
                    "%d calls did not finish within %g s and are cancelled", len(unanswered), drain
                )
                await stop(_STOP)
                await unanswered.none(_FLUSH)
            inbox.close()
            await anyio.sleep_forever()  # with signals still caught: the end is under way

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(until_told)
        await core.run(inbox, writer, None)  # what it can do is known when it is up, and asked for then
        tasks.cancel_scope.cancel()


async def _or_signal(signals: Any, wait: Callable[[], Awaitable[Any]]) -> None:
    """Wait for that or for a signal, whatever comes first."""
    async with anyio.create_task_group() as either:

        async def heard() -> None:
            await anext(signals)
            either.cancel_scope.cancel()

        either.start_soon(heard)
        await wait()
        either.cancel_scope.cancel()


class _Unanswered:
    """Requests that have come in and wait for their answer, and answers that are being written."""

    def __init__(self) -> None:
        self._ids: set[int | str] = set()
        self._writing = 0
        self._nobody = False
        self._fewer = Signal()

    def __len__(self) -> int:
        return 0 if self._nobody else len(self._ids) + self._writing

    def heard(self, message: Any) -> bool:
        """Something came from the client. False for a request with an id that waits for its answer already."""
        if isinstance(message, types.JSONRPCRequest) and not self._nobody:
            key = coerce_request_id(message.id)  # `mcp` takes "7" and 7 for one id
            if key in self._ids:
                return False
            self._ids.add(key)
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            self._drop(as_request_id((message.params or {}).get("requestId")))
        return True

    @contextmanager
    def answering(self, request_id: int | str | None) -> Iterator[None]:
        """Hold this around the writing of an answer. Its id is free: a client that has read it may use it again."""
        self._drop(request_id)
        self._writing += 1
        try:
            yield
        finally:
            self._writing -= 1
            self._fewer.notify()

    def _drop(self, request_id: int | str | None) -> None:
        if request_id is not None:
            self._ids.discard(coerce_request_id(request_id))
            self._fewer.notify()

    def forget(self) -> None:
        """Nobody waits any more, for these or for others."""
        self._nobody = True
        self._ids.clear()
        self._fewer.notify()

    async def none(self, seconds: float) -> None:
        """Wait until there are none, but not longer than that."""
        with anyio.move_on_after(seconds):
            await self._fewer.wait_until(lambda: not len(self))


def _read(
    source: int,
    take: Callable[[Any], None],
    writer: "_Writer",
    post: Callable[[Callable[[], None]], None],
    ended: anyio.Event,
) -> None:
    """The reading thread: bytes to lines to messages, until the end."""
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
                    post(_taken(bytes(line), take, writer))
        if len(pending) > _LINE:
            pending.clear()
            if not skipping:
                skipping = True
                post(partial(writer.put, _TOO_LONG))
    post(ended.set)


def _taken(line: bytes, take: Callable[[Any], None], writer: "_Writer") -> Callable[[], None]:
    """What to do on the event loop for one line."""
    if (reason := describe_excess(line, _JSON)) is not None:
        error = RpcError(INVALID_REQUEST, f"Invalid Request: {reason}, which is the limit of this server")
        refused = orjson.dumps(make_error(find_id(line), error))
        return lambda: writer.put(refused)
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError as error:
        complaint = orjson.dumps(_complaint(line, error.errors(include_url=False)[0]["msg"]))
        return lambda: writer.put(complaint)
    if isinstance(message, types.JSONRPCNotification) and "id" in from_json(line):
        # A request with an id that is none: `mcp` overlooks it, and its sender would wait for ever.
        complaint = orjson.dumps(_complaint(line, "the id must be a string or an integer"))
        return lambda: writer.put(complaint)
    return lambda: take(message)


def _complaint(line: bytes, reason: str) -> dict[str, Any]:
    try:
        message = orjson.loads(line)
    except orjson.JSONDecodeError as broken:
        return make_error(None, RpcError(PARSE_ERROR, "Parse error", {"details": str(broken)}))
    given = message.get("id") if isinstance(message, dict) else None
    usable = isinstance(given, int | str) and not isinstance(given, bool)
    return make_error(given if usable else None, RpcError(INVALID_REQUEST, f"Invalid Request: {reason}"))


def _line(message: Any) -> bytes:
    """A message as a line, or instead of one that JSON cannot hold what its receiver should know; maybe nothing."""
    try:
        if isinstance(message, types.JSONRPCResponse) and orjson.Fragment in map(
            type, message.result.values()
        ):
            answer = {
                **make_response("", message.result),
                "id": orjson.Fragment(dumps(message.id)),
            }  # maybe over 64 bits
            return orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE)
        text: str = message.model_dump_json(by_alias=True, exclude_unset=True)
        return text.encode() + b"\n"
    except (ValueError, RecursionError) as error:
        if isinstance(message, types.JSONRPCRequest):
            raise  # to whoever asks
        logger.warning("a message to the client cannot be written as JSON: %s", error)
        if isinstance(message, types.JSONRPCNotification):
            return b""
        return dumps(make_error(message.id, _UNWRITABLE)) + b"\n"


class _Writer:
    """What the server writes to: one line a message, in order. `lost` is called when nobody can read them.

    A client that reads nothing for too long while too much waits for it counts as lost.
    """

    def __init__(
        self,
        target: int,
        answering: Callable[[Any], AbstractContextManager[None]],
        lost: Callable[[], None],
    ) -> None:
        self._target = target
        self._answering = answering
        self._lost = lost
        self._workers = Workers(1)
        self._turn = anyio.Lock()
        self._own: list[bytes] = []
        self._closed = False
        self._waiting = 0  # bytes
        self._read_at = 0.0  # when the client last took some of them

    def put(self, line: bytes) -> None:
        """A line of the transport itself; it goes out before the next message, or now."""
        if self._closed or not self._queued(len(line) + 1):
            return
        self._own.append(line + b"\n")
        with suppress(anyio.WouldBlock):
            self._turn.acquire_nowait()
            try:
                while self._own and _ready(self._target, len(self._own[0])):
                    self._write_all(self._next())
            except OSError as error:
                self._break(error)
            finally:
                self._turn.release()

    async def send(self, item: SessionMessage) -> None:
        line = _line(item.message)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
            with self._answering(item.message.id):
                await self._put_out(line)
        else:
            await self._put_out(line)

    def _queued(self, size: int) -> bool:
        """So many bytes more are to be written. False if the client reads nothing: it is lost."""
        now = time.monotonic()
        if not self._waiting:
            self._read_at = now
        self._waiting += size
        if self._waiting <= _UNREAD or now - self._read_at < _PATIENCE:
            return True
        logger.error("the client has read nothing for %g s: the connection is ended", now - self._read_at)
        self._lose()
        return False

    async def _put_out(self, line: bytes) -> None:
        if self._closed or not self._queued(len(line)):
            raise anyio.ClosedResourceError
        try:
            async with self._turn:
                if self._closed:
                    raise anyio.ClosedResourceError
                await self._write_own()
                await self._write(line)
                await self._write_own()  # those that came meanwhile
        except OSError as error:
            self._break(error)
            raise anyio.BrokenResourceError from error
        finally:
            self._waiting -= len(line)

    async def _write_own(self) -> None:
        while self._own:
            await self._write(self._next())

    def _next(self) -> bytes:
        line = self._own.pop(0)
        self._waiting -= len(line)
        return line

    async def _write(self, line: bytes) -> None:
        if _ready(self._target, len(line)):
            self._write_all(line)
        else:
            await self._workers.run(partial(self._write_all, line))

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._target, view) :]
            self._read_at = time.monotonic()

    def _break(self, error: OSError) -> None:
        if error.errno != errno.EPIPE:  # else the client has left, as it may
            logger.error("cannot write to the client: %s", error.strerror)
        self._lose()

    def _lose(self) -> None:
        self._closed = True
        while self._own:
            self._next()
        self._lost()

    async def aclose(self) -> None:
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True


def _ready(target: int, size: int) -> bool:
    """Whether so many bytes can be written at once without waiting. Windows cannot tell."""
    return sys.platform != "win32" and size <= _SURE and bool(select.select([], [target], [], 0)[1])
