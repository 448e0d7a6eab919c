"""One live connection: drives the protocol over a pipe.

Owns the queue of unread messages, the questions in both directions, and the end. One rule above all: nothing here
waits for a consumer, so a control answer gets through however many messages lie unread. What a question means is
in the table of handlers; this module must not know of hooks, permissions or MCP.
"""

import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import CoroutineType
from typing import Any, Final

import anyio

from toolwire._conversation.taps import Taps
from toolwire._protocol.control import Cancelled, Control, Malformed, Requested, Responded, Unmatched
from toolwire._protocol.lines import DEFAULT_LIMIT, Lines, decode, encode
from toolwire._protocol.run import DEFAULT_CEILING, Run
from toolwire._support.log import logger_for, redact
from toolwire._support.tasks import Task, cancelled_from_inside, is_cancellation, spawn
from toolwire._transport.base import Pipe
from toolwire._transport.stderr import Stderr
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

Handler = Callable[[dict[str, Any]], dict[str, Any] | Awaitable[dict[str, Any]]]
"""Answers one kind of question, at once or later. What it raises goes to the CLI as an error."""

_WIND_DOWN: Final = 2.0  # seconds that cancelled handlers get
LEAVE: Final = 5.0
"""Seconds that the CLI gets to go by itself when its input has ended; the option `close_timeout`."""


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
        taps: Taps | None = None,
        leave: float = LEAVE,
    ) -> None:
        self._pipe = pipe
        self._leave = leave
        self._taps = taps or None  # to ask an empty one for each frame would cost
        self._handlers = handlers
        self._control = Control()
        self._lines = Lines(limit)
        self._run = Run(ceiling)
        self._stderr = Stderr(on_stderr)
        self._inbox: deque[Any] = deque()
        self._pending: dict[str, _Pending] = {}
        self._unanswered: dict[str, Requested] = {}  # questions that still want an answer, by their ids
        self._handling: dict[
            Requested, Task
        ] = {}  # and all handlers that run, those of withdrawn questions too
        self._moved: anyio.Event | None = None  # set at every message and at the end, when somebody waits
        self._idle_handlers: anyio.Event | None = None
        self._failed_result: dict[str, Any] | None = None
        self._closer: Task | None = None
        self._closed = anyio.Event()
        self._ending = False
        self._stopped = False
        self._over = False
        self._error: Exception | None = None

    # What a client does.

    async def open(self) -> None:
        """Start the pipe."""
        await self._pipe.open(self)

    @property
    def unread(self) -> int:
        """How many messages wait for a consumer."""
        return len(self._inbox)

    @property
    def skipped_lines(self) -> int:
        """How many lines of the CLI were no JSON objects."""
        return self._lines.skipped

    @property
    def alive(self) -> bool:
        """Whether questions and prompts can still be sent."""
        return not self._over and self._closer is None

    def prompt(self, frame: dict[str, Any]) -> None:
        """Write one user message."""
        line = encode(frame)
        self._must_be_alive()
        if frame.get("type") == "user":  # other frames may be streamed too, and get no result
            self._run.prompted(time.monotonic())
        self._write(line)

    def _write(self, line: bytes) -> None:
        if self._taps:
            self._taps("out", decode(line))
        self._pipe.write(line)

    async def drain(self) -> None:
        """Wait until the CLI has taken what was written; raises why it could not."""
        await self._pipe.drain()
        if self._error is not None:
            raise self._error

    async def request(self, body: dict[str, Any], timeout: float) -> dict[str, Any]:  # noqa: ASYNC109 - it has an error of its own
        """Send a control request and wait for its answer."""
        self._must_be_alive()
        request_id, line = self._control.request(body)
        question = self._pending[request_id] = _Pending()
        self._write(line)
        try:
            with anyio.move_on_after(timeout):
                await question.settled.wait()
        finally:
            del self._pending[request_id]
            self._control.forget(request_id)
        return self._answer_to(body["subtype"], question, timeout)

    def tell(self, body: dict[str, Any]) -> None:
        """Send a control request whose answer nobody waits for. Nothing happens once the connection has ended."""
        if self.alive:
            request_id, line = self._control.request(body)
            self._control.forget(request_id)
            self._write(line)

    def inject(self, message: Any) -> None:
        """Put a message of our own into the conversation."""
        self._inbox.append(message)
        self._wake()

    def take(self) -> Any:
        """The next frame that has come already, None if none has."""
        return self._inbox.popleft() if self._inbox else None

    async def next_frame(self) -> Any:
        """The next frame, or message of our own; None at a good end, an exception at a bad one."""
        while not self._inbox:
            if self._over or self._closer is not None:
                if self._error is not None:
                    raise self._error.with_traceback(None)
                return None
            await self._wait_for_change()
        return self._inbox.popleft()

    async def end_input_when_over(self) -> None:
        """Wait until nothing more is owed, then end the input: the CLI leaves by itself."""
        while not self._over:
            until = self._run.until()
            now = time.monotonic()
            if until is not None and until <= now:
                break
            with anyio.move_on_after(None if until is None else until - now):
                await self._wait_for_change()
        self._pipe.end_input()

    async def wait_for_exit(self) -> None:
        """Wait for the CLI to leave after the end of its input, and end it if it does not."""
        with anyio.move_on_after(self._leave):
            while not self._over:
                await self._wait_for_change()
        if not self._over and self._closer is None:
            logger.warning(
                "the CLI did not leave within %g s of the end of its run (close_timeout): ended by force",
                self._leave,
            )
            await self._begin_closing()

    async def aclose(self) -> None:
        """End everything in bounded time. Any task may call it, any number of times, cancelled or not."""
        if self._closer is None:
            await self._begin_closing()
        with anyio.CancelScope(shield=True):
            await self._closed.wait()

    async def _begin_closing(self) -> None:
        try:
            self._closer = spawn(self._close, on_done=self._gone)
            self._wake()
        except RuntimeError:  # trio is on its way out and takes no new tasks: close in this one
            with anyio.CancelScope(shield=True) as self._closer:
                try:
                    await self._close()
                finally:
                    self._gone()

    # What the pipe tells us. Synchronous, on the event loop.

    def data_received(self, data: bytes) -> None:
        for frame in self._lines.feed(data):
            self.frame_received(frame)

    def frame_received(self, frame: dict[str, Any]) -> None:
        if self._taps:
            self._taps("in", frame)
        event = self._control.receive(frame)
        if event is None:
            self._on_message(frame)
        else:
            _ROUTES[type(event)](self, event)

    def stderr_received(self, data: bytes) -> None:
        self._stderr.feed(data)

    def ended(self, exit_code: int | None, error: Exception | None = None) -> None:
        if self._over:
            return
        self._ending = True
        for frame in self._lines.finish():
            self.frame_received(frame)
        self._stderr.finish()
        self._over = True
        if self._closer is None:
            self._error = self._why(exit_code, error)
        for question in self._pending.values():
            question.settle(None)
        self._unanswered.clear()
        for task in list(self._handling.values()):
            task.cancel()
        self._wake()

    def _on_message(self, frame: dict[str, Any]) -> None:
        self._run.feed(frame, time.monotonic())
        kind = frame.get("type")
        if kind == "result":
            self._failed_result = frame if frame.get("is_error") else None
        elif kind == "system" and frame.get("subtype") == "session_state_changed":
            if frame.get("sdk_host_only") is True:  # sent because we asked for it, not for the user
                self._wake()
                return
        else:
            self._failed_result = None
        self._inbox.append(frame)
        self._wake()

    # Events, by table.

    def _on_requested(self, event: Requested) -> None:
        handler = self._handlers.get(event.subtype)
        if handler is None:
            logger.warning("the CLI asked %r, which nothing here answers: refused", event.subtype)
            refusal = f"Unsupported control request subtype: {event.subtype}"
            self._write(self._control.respond_error(event.request_id, refusal))
        elif event.request_id in self._unanswered:
            logger.warning("the CLI asked twice with the id %s: the second is ignored", event.request_id)
        elif self._closer is None and not self._ending:
            self._handle(handler, event)

    def _on_cancelled(self, event: Cancelled) -> None:
        asked = self._unanswered.pop(event.request_id, None)
        if asked is not None:
            self._handling[asked].cancel()

    def _on_responded(self, event: Responded) -> None:
        question = self._pending.get(event.request_id)
        if question is not None:
            question.settle(event)

    def _on_malformed(self, event: Malformed) -> None:
        logger.warning("%s: refused", event.reason)
        self._write(event.reply)

    def _on_unmatched(self, event: Unmatched) -> None:
        logger.debug("an answer to nothing that was asked: %s", event.request_id)

    def _handle(self, handler: Handler, asked: Requested) -> None:
        try:
            response = handler({**asked.body, "request_id": asked.request_id})
            if not isinstance(response, dict):
                self._unanswered[asked.request_id] = asked
                done = partial(self._done, response, asked)
                self._handling[asked] = spawn(self._answer, response, asked, on_done=done)
                return
            line = self._control.respond(asked.request_id, response)
        except Exception as error:  # noqa: BLE001 - as in _answer
            self._still_wanted(asked)
            line = self._failure(asked, error)
        self._write(line)

    def _done(self, response: Awaitable[dict[str, Any]], asked: Requested) -> None:
        if self._still_wanted(asked):  # cancelled, but neither by the CLI nor by us
            logger.warning("the handler of %r has cancelled itself", asked.subtype)
            self._write(self._control.respond_error(asked.request_id, "the handler was cancelled"))
        del self._handling[asked]
        if isinstance(response, CoroutineType):
            response.close()  # it may never have been started
        if self._idle_handlers is not None and not self._handling:
            self._idle_handlers.set()

    def _still_wanted(self, asked: Requested) -> bool:
        """Whether the question is open; it is not any more after this. Its id may be used again by then."""
        if self._unanswered.get(asked.request_id) is not asked:
            return False
        del self._unanswered[asked.request_id]
        return True

    async def _answer(self, response: Awaitable[dict[str, Any]], asked: Requested) -> None:
        try:
            line = self._control.respond(asked.request_id, await response)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the boundary of the handler: the CLI hears of every failure
            if is_cancellation(error) and not cancelled_from_inside():
                raise
            line = self._failure(asked, error)
        if self._still_wanted(asked):
            self._write(line)

    def _failure(self, asked: Requested, error: BaseException) -> bytes:
        reason = message_of(error) or type(error).__name__
        logger.warning("answering %r failed: %s", asked.subtype, reason, exc_info=error)
        return self._control.respond_error(asked.request_id, reason)

    # The end.

    async def _close(self) -> None:
        try:
            await self._stop_handlers()
            if self._run.busy and not self._over:
                # Without it the CLI would finish the turn before it heeds the end of its input.
                self._write(self._control.request({"subtype": "interrupt"})[1])
        except BaseException:
            self._pipe.kill()  # the event loop is going down: there is no time left to be gentle
            raise
        finally:
            await self._pipe.stop()
            self._stopped = True

    def _gone(self) -> None:
        """Closing has ended, or was cancelled before it began."""
        if not self._stopped:
            self._pipe.kill()
        self.ended(None)
        self._closed.set()

    async def _stop_handlers(self) -> None:
        if not self._handling:
            return
        self._idle_handlers = anyio.Event()
        self._unanswered.clear()
        for task in list(self._handling.values()):
            task.cancel()
        with anyio.move_on_after(_WIND_DOWN):
            await self._idle_handlers.wait()
        if self._handling:
            logger.warning("%d handlers did not stop within %g s", len(self._handling), _WIND_DOWN)

    def _why(self, exit_code: int | None, error: Exception | None) -> Exception | None:
        """The exception for an end that we did not ask for, None for a good one."""
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
        if self._run.unanswered:
            return ProcessError("Claude Code ended before it answered", exit_code=exit_code, stderr=stderr)
        return None

    # Small things.

    def _answer_to(self, subtype: str, question: "_Pending", seconds: float) -> dict[str, Any]:
        if not question.settled.is_set():
            text = f"Claude Code did not answer the control request {subtype!r} within {seconds:g} s"
            tail = self._stderr.tail()
            raise CLITimeoutError(f"{text}\nError output: {tail}" if tail else text)
        answer = question.answer
        if answer is None:
            raise self._error or CLIConnectionError(f"The connection ended before {subtype!r} was answered")
        if answer.error is None:
            return answer.response
        kind = UnsupportedRequestError if answer.error_code == "unsupported_request" else ControlRequestError
        raise kind(redact(answer.error), subtype=subtype, error_code=answer.error_code)

    def _must_be_alive(self) -> None:
        if self._over and isinstance(self._error, ClaudeSDKError):
            raise self._error
        if not self.alive:
            raise CLIConnectionError("The connection to Claude Code has ended; connect again.")

    async def _wait_for_change(self) -> None:
        if self._moved is None:
            self._moved = anyio.Event()
        await self._moved.wait()

    def _wake(self) -> None:
        moved, self._moved = self._moved, None
        if moved is not None:
            moved.set()


_ROUTES: dict[type, Callable[[Session, Any], None]] = {
    Requested: Session._on_requested,  # noqa: SLF001 - the table of this class
    Cancelled: Session._on_cancelled,  # noqa: SLF001
    Responded: Session._on_responded,  # noqa: SLF001
    Malformed: Session._on_malformed,  # noqa: SLF001
    Unmatched: Session._on_unmatched,  # noqa: SLF001
}


class _Pending:
    """One of our own questions, waiting."""

    def __init__(self) -> None:
        self.settled = anyio.Event()
        self.answer: Responded | None = None

    def settle(self, answer: Responded | None) -> None:
        if not self.settled.is_set():
            self.answer = answer
            self.settled.set()
