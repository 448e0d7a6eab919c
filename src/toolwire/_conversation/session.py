"""One live connection: drives the protocol over a pipe.

Owns the queue of unread messages, the requests in both directions, and the end of the connection. The main rule:
nothing here waits for a consumer, so a control response gets through however many messages are unread. How requests
are handled is up to the table of handlers; this module must not know about hooks, permissions or MCP.
"""

import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from enum import Enum
from functools import partial
from types import CoroutineType
from typing import Any, Final, Literal

from toolwire._protocol.control import Cancelled, Control, Handler, Malformed, Requested, Responded, Unmatched
from toolwire._protocol.lines import DEFAULT_LIMIT, Lines, decode, encode
from toolwire._protocol.run import DEFAULT_CEILING, Run
from toolwire._support.log import logger_for
from toolwire._support.secrets import redact
from toolwire._support.tasks import Task, cancelled_from_inside, is_cancellation, shield, spawn
from toolwire._support.waiting import Future, Signal
from toolwire._transport.base import CLOSE_TIMEOUT, Pipe
from toolwire.errors import (
    ClaudeSDKError,
    CLIConnectionError,
    CLITimeoutError,
    ControlRequestError,
    ProcessError,
    ResultError,
    UnsupportedRequestError,
    message_of,
    result_error_text,
)

logger = logger_for("session")
stderr_logger = logger_for("cli.stderr")

Tap = Callable[[Literal["in", "out"], dict[str, Any]], None]
"""Called with each frame from and to the CLI. Must not raise."""

_TAIL: Final = 8_192  # characters of stderr that an error message shows at most
_TAIL_LINES: Final = 20
_TAIL_WIDTH: Final = 300


class Stderr:
    """The CLI's stderr: lines for the user's callback and the log, and its tail for error texts."""

    def __init__(self, callback: Callable[[str], None] | None) -> None:
        self._callback = callback
        self._tail = b""
        self._line = b""

    def feed(self, data: bytes) -> None:
        """Process a chunk, which may end in the middle of a line."""
        # More is kept than is shown, so that a secret at the edge is whole and gets redacted.
        self._tail = (self._tail + data)[-2 * _TAIL :]
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._emit(line)
        if len(self._line) > _TAIL:
            self.finish()

    def finish(self) -> None:
        """Emit the rest as a line: the last line may lack its newline."""
        line, self._line = self._line, b""
        self._emit(line)

    def tail(self) -> str | None:
        """Return the last lines without secrets, long lines cut; None if nothing was written."""
        text = redact(self._tail.decode(errors="replace"))
        lines = text[-_TAIL:].strip().splitlines()[-_TAIL_LINES:]
        return (
            "\n".join(line if len(line) <= _TAIL_WIDTH else line[:_TAIL_WIDTH] + "…" for line in lines)
            or None
        )

    def _emit(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if not text:
            return
        stderr_logger.debug("%s", text)
        if self._callback is not None:
            try:
                self._callback(text)
            except Exception:  # the user's own code: it must not end the session
                logger.exception("the stderr callback failed")


_HANDLERS_STOP: Final = 2.0  # seconds that cancelled handlers get
_handling: ContextVar[tuple["Session", ...]] = ContextVar("handling", default=())
"""The sessions whose handlers run in this context; two if a client is used inside a tool of another one. Set once
per session, not per handler, because setting it costs three allocations."""


class _State(Enum):
    OPEN = "prompts and requests can be sent"
    ENDED = "the CLI has ended by itself; its messages can still be read"
    CLOSING = "aclose() has begun, and the CLI has not ended yet"
    STOPPED = "aclose() has begun, and the CLI has ended"
    CLOSED = "nothing is left running"


_OPEN: Final = _State.OPEN  # a global of its own: it is checked for every request

_CLI_ENDED: Final = "the CLI has ended"
_CLOSE: Final = "aclose() was called"
_DONE: Final = "closing is done"

# A step that is not listed changes nothing, such as a second end or a second close.
_TRANSITIONS: Final[Mapping[tuple[_State, str], _State]] = {
    (_State.OPEN, _CLI_ENDED): _State.ENDED,
    (_State.OPEN, _CLOSE): _State.CLOSING,
    (_State.ENDED, _CLOSE): _State.STOPPED,
    (_State.CLOSING, _CLI_ENDED): _State.STOPPED,
    (_State.STOPPED, _DONE): _State.CLOSED,
}


class Session:
    """Reads, routes and writes until it is closed or the CLI ends."""

    def __init__(
        self,
        pipe: Pipe,
        handlers: Mapping[str, Handler],
        *,
        limit: int = DEFAULT_LIMIT,
        ceiling: float | None = DEFAULT_CEILING,
        on_stderr: Callable[[str], None] | None = None,
        tap: Tap | None = None,
        close_timeout: float = CLOSE_TIMEOUT,
        on_transcript: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._pipe = pipe
        self._on_transcript = on_transcript
        self._close_timeout = close_timeout
        self._tap = tap
        self._handlers = handlers
        self._control = Control()
        self._lines = Lines(limit)
        self._run = Run(ceiling)
        self._stderr = Stderr(on_stderr)
        self.inbox: deque[Any] = deque()
        """Unread frames of the CLI, and messages that toolwire added."""
        self._pending: dict[str, Future[Responded | None]] = {}  # our requests, by id
        self._unanswered: dict[str, Requested] = {}  # requests of the CLI, by id
        self._answered_at = 0.0  # when a handler task last answered a request of the CLI
        self._context: Context  # of the handlers, from `open()` on
        self._tasks: dict[Requested, Task] = {}  # all running handlers, those of cancelled requests too
        self._changed = Signal()  # notified at every message and every change of state
        self._prompt_streams = 0
        self._failed_result: dict[str, Any] | None = None
        self._state = _OPEN
        self._error: Exception | None = None  # why the CLI ended by itself, if it failed
        self._only_reading_ended = False  # of a user's transport, which may be a replay

    def _step(self, step: str) -> bool:
        """Take a step in the table of transitions. Returns False if the current state has no such step."""
        following = _TRANSITIONS.get((self._state, step))
        if following is None:
            return False
        self._state = following
        self._changed.notify()
        return True

    # For the client.

    async def open(self) -> None:
        """Start the pipe."""
        self._context = copy_context()
        self._context.run(_handling.set, (*_handling.get(), self))
        await self._pipe.open(self)

    @property
    def unread(self) -> int:
        """The number of unread messages."""
        return len(self.inbox)

    @property
    def skipped_lines(self) -> int:
        """The number of lines of the CLI that were not JSON objects."""
        return self._lines.skipped

    @property
    def error(self) -> Exception | None:
        """Why the CLI ended by itself; None while it runs and after a normal end."""
        return self._error

    @property
    def session_id(self) -> str | None:
        """The session id that the CLI reported last; None before its first turn."""
        return self._run.session_id

    @property
    def prompt_sent(self) -> bool:
        """True once a prompt was written."""
        return self._run.prompt_sent

    @property
    def alive(self) -> bool:
        """True while requests and prompts can be sent."""
        return self._state is _OPEN

    @property
    def still_writable(self) -> bool:
        """True if a user's transport has nothing more to read but can still be written to."""
        return self._only_reading_ended and self._state is _State.ENDED

    @property
    def handling(self) -> bool:
        """True while a request of the CLI is being handled."""
        return bool(self._tasks)

    def prompt(self, frame: dict[str, Any]) -> None:
        """Write one user message."""
        line = encode(frame)
        if not self.still_writable:
            self._must_be_open()
        if frame.get("type") == "user":  # other frames may be streamed too, and get no result
            self._run.prompted(time.monotonic())
        self._write(line)

    @contextmanager
    def prompt_stream(self) -> Iterator[None]:
        """Inside this context more prompts are expected, so `wait_for_frame` keeps waiting for a result."""
        self._prompt_streams += 1
        try:
            yield
        finally:
            self._prompt_streams -= 1
            self._changed.notify()

    def _write(self, line: bytes) -> None:
        if self._tap is not None:
            self._tap("out", decode(line))
        self._pipe.write(line)

    async def flush(self) -> None:
        """Wait until the CLI has taken everything written. Raises only errors of writing."""
        await self._pipe.drain()

    async def drain(self) -> None:
        """Wait until the CLI has taken everything written. Raises the error if the connection has failed."""
        await self.flush()
        if self._error is not None and not self.still_writable:
            raise self._error

    async def request(self, body: dict[str, Any], timeout: float) -> dict[str, Any]:  # noqa: ASYNC109 - raises CLITimeoutError
        """Send a control request and wait for its response."""
        self._must_be_open()
        request_id, line = self._control.request(body)
        response: Future[Responded | None] = Future()
        self._pending[request_id] = response
        self._write(line)
        if body["subtype"] == "interrupt":
            self._run.interrupted()
        try:
            await response.wait(timeout)
        finally:
            del self._pending[request_id]
            self._control.forget(request_id)
        if response.is_set:
            return self._unpack(body["subtype"], response.value)
        text = f"Claude Code did not answer the control request {body['subtype']!r} within {timeout:g} s"
        tail = self._stderr.tail()
        raise CLITimeoutError(f"{text}\nError output: {tail}" if tail else text)

    def send(self, body: dict[str, Any]) -> None:
        """Send a control request and ignore its response. Does nothing once the connection has ended."""
        if self._state is _OPEN:
            request_id, line = self._control.request(body)
            self._control.forget(request_id)
            self._write(line)

    def inject(self, message: Any, *, first: bool = False) -> None:
        """Add a message to the unread ones, at the end or, with `first`, at the beginning."""
        if first:
            self.inbox.appendleft(message)
        else:
            self.inbox.append(message)
        self._changed.notify()

    async def next_frame(self, *, of_response: bool = False) -> Any:
        """Return the next frame or added message, None after a normal end. Raises the error if the CLI failed."""
        return self.inbox.popleft() if await self.wait_for_frame(of_response=of_response) else None

    async def wait_for_frame(self, *, of_response: bool = False) -> bool:
        """Wait until there is an unread message. Returns False after a normal end; raises if the CLI failed.

        With `of_response`, raises `CLIConnectionError` when no result is due, instead of waiting forever.
        """
        began = time.monotonic() if of_response else 0.0
        while not self.inbox:
            if self._state is not _OPEN:
                if self._error is not None:
                    raise self._error.with_traceback(None)
                return False
            if of_response:
                await self._wait_for_response(began)
            else:
                await self._changed.wait()
        return True

    async def _wait_for_response(self, began: float) -> None:
        self._note_work()
        due = None if self._prompt_streams else self._run.result_due(began)
        if due is not None and due <= time.monotonic():
            raise CLIConnectionError(
                "receive_response(): no prompt is waiting for a response. Send one with query() first, or use "
                "receive_messages() to read messages whenever they arrive."
            )
        await self._wait(due)

    def _note_work(self) -> None:
        """Treat the handling of requests as work of the CLI, so that a slow hook does not look like silence."""
        self._run.at_work(time.monotonic() if self._unanswered else self._answered_at)

    async def _wait(self, until: float | None) -> None:
        """Wait for a change, at most until the given time."""
        await self._changed.wait(None if until is None else until - time.monotonic())

    async def end_input_when_over(self) -> None:
        """Wait until the run is over, then end the input, so that the CLI exits by itself."""
        while self._state is _OPEN:
            self._note_work()
            until = self._run.over_at()
            if until is not None and until <= time.monotonic():
                break
            await self._wait(until)
        if self._state is not _State.CLOSING:  # closing ends the input itself, after an interrupt
            self._pipe.end_input()

    async def wait_for_exit(self) -> None:
        """Wait for the CLI to exit after the end of its input, and close the session if it does not."""
        await self._changed.wait_until(lambda: self._state is not _OPEN, self._close_timeout)
        if self._state is _OPEN:
            logger.warning(
                "the CLI did not exit within %g s after its run (close_timeout); stopping it",
                self._close_timeout,
            )
            await self.begin_closing()

    def called_by_handler(self) -> bool:
        """True in a handler of this session and in tasks that it started, while any handler is running."""
        return bool(self._tasks) and self in _handling.get()

    async def aclose(self) -> None:
        """End everything in bounded time. May be called repeatedly, from any task, even a cancelled one."""
        await self.begin_closing()
        with shield():
            await self._changed.wait_until(lambda: self._state is _State.CLOSED)

    async def begin_closing(self) -> None:
        """Start closing without waiting for the end. From now on results of handlers are no longer sent."""
        if not self._step(_CLOSE):
            return
        self._cancel_handlers()
        try:
            spawn(self._close, on_done=self._closed)
        except RuntimeError:  # trio is shutting down and takes no new tasks: close in this one
            with shield():
                try:
                    await self._close()
                finally:
                    self._closed()

    # Callbacks of the pipe: synchronous, on the event loop.

    def data_received(self, data: bytes) -> None:
        self._receive(self._lines.feed(data))

    def frame_received(self, frame: dict[str, Any]) -> None:
        self._receive((frame,))

    def _receive(self, frames: Iterable[dict[str, Any]]) -> None:
        """Handle frames that arrived together. Consumers are woken once, and run when all are in the inbox."""
        control, tap, now, waking = self._control, self._tap, time.monotonic(), False
        for frame in frames:
            if tap is not None:
                tap("in", frame)
            event = control.receive(frame)
            if event is not None:
                _ROUTES[type(event)](self, event)
                continue
            self._on_message(frame, now)
            if not waking:
                self._changed.notify()
                waking = True

    def stderr_received(self, data: bytes) -> None:
        self._stderr.feed(data)

    def ended(self, exit_code: int | None, error: Exception | None = None) -> None:
        by_itself = self._state is _OPEN
        if not self._step(_CLI_ENDED):
            return
        self._receive(self._lines.finish())
        self._stderr.finish()
        if by_itself:
            self._error = self._find_error(exit_code, error)
        self._end_requests()
        if not self._only_reading_ended:
            self._cancel_handlers()

    def reading_ended(self, error: Exception | None) -> None:
        self._only_reading_ended = True
        self.ended(None, error)

    def _end_requests(self) -> None:
        for response in self._pending.values():
            response.set(None)

    def _on_message(self, frame: dict[str, Any], now: float) -> None:
        self._run.feed(frame, now)
        if self._run.must_interrupt_again:
            self._run.must_interrupt_again = False
            self.send({"subtype": "interrupt"})
        kind = frame.get("type")
        if kind == "result":
            self._failed_result = frame if frame.get("is_error") else None
        elif kind == "system" and frame.get("subtype") == "session_state_changed":
            if frame.get("sdk_host_only") is True:  # requested by toolwire, not for the user
                return
        elif kind == "transcript_mirror":
            if self._on_transcript is not None:
                self._on_transcript(frame)
            return
        else:
            self._failed_result = None
        self.inbox.append(frame)

    # Events of the control protocol, by table.

    def _on_requested(self, event: Requested) -> None:
        handler = self._handlers.get(event.subtype)
        if handler is None:
            logger.warning("refused the control request %r: it has no handler", event.subtype)
            reason = f"Unsupported control request subtype: {event.subtype}"
            self._write(self._control.respond_error(event.request_id, reason))
        elif event.request_id in self._unanswered:
            logger.warning("ignored a control request: its id %s is that of a pending one", event.request_id)
        elif self._state is _OPEN:
            self._handle(handler, event)

    def _on_cancelled(self, event: Cancelled) -> None:
        request = self._unanswered.pop(event.request_id, None)
        if request is not None:
            self._tasks[request].cancel()

    def _on_responded(self, event: Responded) -> None:
        response = self._pending.get(event.request_id)
        if response is not None:
            response.set(event)

    def _on_malformed(self, event: Malformed) -> None:
        logger.warning("refused a %s", event.reason)
        self._write(event.reply)

    def _on_unmatched(self, event: Unmatched) -> None:
        logger.debug("ignored a response that matches no pending request: %s", event.request_id)

    def _handle(self, handler: Handler, request: Requested) -> None:
        try:
            response = handler({**request.body, "request_id": request.request_id})
            if not isinstance(response, dict):
                self._unanswered[request.request_id] = request
                done = partial(self._handled, response, request)
                self._tasks[request] = spawn(
                    self._respond, response, request, on_done=done, context=self._context
                )
                return
            line = self._control.respond(request.request_id, response)
        except Exception as error:  # noqa: BLE001 - as in _respond
            self._take_unanswered(request)
            line = self._failure(request, error)
        self._write(line)

    async def _respond(self, response: Awaitable[dict[str, Any]], request: Requested) -> None:
        try:
            line = self._control.respond(request.request_id, await response)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the boundary of user code: the CLI is sent every failure
            if is_cancellation(error) and not cancelled_from_inside():
                raise
            line = self._failure(request, error)
        if self._take_unanswered(request):
            self._write(line)

    def _handled(self, response: Awaitable[dict[str, Any]], request: Requested) -> None:
        """Clean up after the task of a handler, which may never have been started."""
        if self._take_unanswered(request):  # cancelled, but not by the CLI and not by toolwire
            logger.warning("the handler of %r cancelled itself", request.subtype)
            self._write(self._control.respond_error(request.request_id, "the handler was cancelled"))
        del self._tasks[request]
        if isinstance(response, CoroutineType):
            response.close()
        if self._state is not _OPEN:
            self._changed.notify()

    def _take_unanswered(self, request: Requested) -> bool:
        """Mark the request as answered. Returns False if it was no longer pending (ids are reused)."""
        if self._unanswered.get(request.request_id) is not request:
            return False
        del self._unanswered[request.request_id]
        self._answered_at = time.monotonic()
        return True

    def _failure(self, request: Requested, error: BaseException) -> bytes:
        reason = message_of(error) or type(error).__name__
        logger.warning("the handler of %r failed: %s", request.subtype, reason, exc_info=error)
        return self._control.respond_error(request.request_id, reason)

    # The end.

    async def _close(self) -> None:
        try:
            await self._stop_handlers()
            if self._run.busy and self._state is _State.CLOSING:
                # Without an interrupt the CLI would finish its turn before reacting to the end of its input.
                self._write(self._control.request({"subtype": "interrupt"})[1])
        except BaseException:
            self._pipe.kill()  # the event loop is shutting down: no time for an orderly stop
            raise
        finally:
            await self._pipe.stop()

    def _closed(self) -> None:
        """Clean up after the closing task, which may have been cancelled before it began."""
        if self._state is _State.CLOSING:
            self._pipe.kill()
            self.ended(None)
        self._step(_DONE)

    def _cancel_handlers(self) -> None:
        self._unanswered.clear()
        for task in list(self._tasks.values()):
            task.cancel()

    async def _stop_handlers(self) -> None:
        self._cancel_handlers()
        await self._changed.wait_until(lambda: not self._tasks, _HANDLERS_STOP)
        if self._tasks:
            logger.warning("%d handlers did not stop within %g s", len(self._tasks), _HANDLERS_STOP)

    def _find_error(self, exit_code: int | None, error: Exception | None) -> Exception | None:
        """Return the exception for a CLI that ended by itself; None if it ended normally."""
        failed = isinstance(error, ProcessError) or exit_code not in (0, None)
        stderr = self._stderr.tail()
        if failed and self._failed_result is not None:
            code = error.exit_code if isinstance(error, ProcessError) else exit_code
            text = f"Claude Code returned an error result: {redact(result_error_text(self._failed_result))}"
            return ResultError(text, data=self._failed_result, exit_code=code, stderr=stderr)
        if error is not None:
            return error
        if failed:
            return ProcessError("Claude Code failed", exit_code=exit_code, stderr=stderr)
        if self._run.unanswered and self._only_reading_ended:
            logger.warning("the transport ended before the result of a prompt arrived")
        elif self._run.unanswered:
            return ProcessError("Claude Code ended before it answered", exit_code=exit_code, stderr=stderr)
        return None

    def _unpack(self, subtype: str, event: Responded | None) -> dict[str, Any]:
        """Return the body of a control response. Raises its error, or the connection's if there is no response."""
        if event is None:
            raise self._error or CLIConnectionError(f"The connection ended before {subtype!r} was answered")
        if event.error is None:
            return event.response
        kind = UnsupportedRequestError if event.error_code == "unsupported_request" else ControlRequestError
        raise kind(redact(event.error), subtype=subtype, error_code=event.error_code)

    def _must_be_open(self) -> None:
        if self._state is not _OPEN:
            if isinstance(self._error, ClaudeSDKError):
                raise self._error
            raise CLIConnectionError("The connection to Claude Code has ended; connect again.")


_ROUTES: dict[type, Callable[[Session, Any], None]] = {
    Requested: Session._on_requested,  # noqa: SLF001 - the table of this class
    Cancelled: Session._on_cancelled,  # noqa: SLF001
    Responded: Session._on_responded,  # noqa: SLF001
    Malformed: Session._on_malformed,  # noqa: SLF001
    Unmatched: Session._on_unmatched,  # noqa: SLF001
}
